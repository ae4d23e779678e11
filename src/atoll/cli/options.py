"""Options that several verbs share, and how they print."""

import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import typer

from atoll.wire import inert
from atoll.wire.base import Result

Url: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Engine to use; default: a private one, or the one of this host.",
                 envvar="ATOLL_URL"),
]  # fmt: skip
Namespace: TypeAlias = Annotated[
    str, typer.Option("--namespace", "-n", help="Namespace of the sandbox.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]

PIPED_WIDTH = 1000
"""Columns of a table that no screen shows: ids and codes are whole for the program that reads it."""


def print_json(value: Result | dict[str, Any]) -> None:
    """Print one line of JSON, in the names of the wire."""
    print(json.dumps(value.to_dict() if isinstance(value, Result) else value), flush=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; nothing in it is markup, or a command to the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns)
    for row in rows:
        table.add_row(*(Text(inert.lines(cell)) for cell in row))
    Console(width=None if sys.stdout.isatty() else PIPED_WIDTH).print(table)
