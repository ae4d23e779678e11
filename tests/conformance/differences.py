"""What level gvisor does in another way, read where users read it: the table of docs/isolation.md."""

from functools import cache
from pathlib import Path
from typing import Final

_PAGE: Final = Path(__file__).parents[2] / "docs" / "isolation.md"


@cache
def of_gvisor() -> dict[str, str]:
    """Return the rows of the table: what is different → how."""
    section = _PAGE.read_text().partition("## Level gvisor\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ", 1) for line in section.splitlines() if line[:1] == "|"]
    return {row[0]: row[1] for row in rows[2:]}
