"""``atoll config``: every setting, its value, and where it came from."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from atoll.cli.options import AsJson, print_json, print_table

_SECRET = frozenset({"server.api_key", "storage.buckets", "backups.secret_access_key"})


def config(
    *,
    file: Annotated[Path | None, typer.Option("--config", help="An atoll.toml.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print each setting with its value and origin: flag, variable, file or default."""
    from atoll.load_settings import load

    loaded = load(file=file)
    values = msgspec.to_builtins(loaded.settings, enc_hook=str)
    rows = {
        name: {"value": shown(name, _value(values, name)), "origin": origin}
        for name, origin in loaded.origins.items()
    }
    if as_json:
        print_json(rows)
        return
    print_table(
        ("Setting", "Value", "From"),
        [(name, str(row["value"]), row["origin"]) for name, row in rows.items()],
    )


def shown(name: str, value: Any) -> Any:
    """Return *value* as it may be printed: never a key."""
    return "(set)" if name in _SECRET and value else value


def _value(values: dict[str, Any], name: str) -> Any:
    group, _, setting = name.rpartition(".")
    return values[group][setting] if group else values[setting]
