"""In what sandboxes that are Pods differ: the table of docs/kubernetes.md, which the suite reads."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kubernetes.md"
REFUSED = "`NOT_SUPPORTED_BY_RUNTIME`"

_ROW = re.compile(r"^\| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)


def differences() -> dict[str, str]:
    """Return what differs → what it is on Pods."""
    section = PAGE.read_text().split("## What differs", 1)[1].split("\n## ", 1)[0]
    rows = {row[1]: row[3] for row in _ROW.finditer(section)}
    return {name: told for name, told in rows.items() if set(name) != {"-"}}
