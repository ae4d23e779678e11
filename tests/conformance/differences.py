"""What levels do in another way, read where users read it: the tables of their pages."""

from functools import cache
from pathlib import Path
from typing import Final

REFUSED: Final = "`NOT_SUPPORTED_BY_RUNTIME`"

_DOCS: Final = Path(__file__).parents[2] / "docs"


@cache
def of_bwrap() -> dict[str, str]:
    """Return the rows of the table: what is different → how it is without root."""
    return {row[0]: row[1] for row in _table("rootless.md", "What is different", 2)}


@cache
def of_gvisor() -> dict[str, str]:
    """Return the rows of the table: what is different → how."""
    return {row[0]: row[1] for row in _table("isolation.md", "Level gvisor", 2)}


@cache
def of_pods() -> dict[str, str]:
    """Return the rows of the table: what is different → how it is as a Pod."""
    return {row[0]: row[2] for row in _table("kubernetes.md", "What differs", 3)}


def _table(page: str, title: str, columns: int) -> list[list[str]]:
    text = (_DOCS / page).read_text()
    section = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line[:1] == "|"]
    return [line.strip("| ").split(" | ", columns - 1) for line in lines[2:]]
