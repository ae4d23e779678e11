"""Refuse source files over 400 lines, except those listed here with the reason.

The list may only shrink: an entry whose file is short enough again must be removed.
"""

import sys
from pathlib import Path

LIMIT = 400
ALLOWED = {
    "src/atoll/errors.py": "one registry of all error codes, three lines each",
}
GENERATED = "src/atoll/sdk/_sync/"


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    problems = []
    for path in sorted((root / "src").rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if name.startswith(GENERATED):
            continue
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > LIMIT and name not in ALLOWED:
            problems.append(f"{name}: {lines} lines, over the limit of {LIMIT}")
        if lines <= LIMIT and name in ALLOWED:
            problems.append(f"{name}: short enough now, remove it from the list")
    problems += [f"{name}: listed but not there" for name in ALLOWED if not (root / name).exists()]
    print("\n".join(problems) or "file sizes: fine")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
