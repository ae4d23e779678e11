"""The agent's code where every user can read it, as in a sandbox.

A checkout may stand below a directory that is closed to other users (/root), but a process of the
agent that has become somebody else still imports what it needs then.
"""

import atexit
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

import atoll

RUN = "import sys; sys.path.insert(0, sys.argv[1]); from atoll.agent.__main__ import main; main()"
"""Program text that starts the agent from the directory in its first argument."""


@cache
def readable() -> Path:
    """Return a directory with a copy of the package, which lives as long as the test run."""
    place = Path(tempfile.mkdtemp(prefix="atoll-agent-code-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    shutil.copytree(Path(atoll.__file__).parent, place / "atoll")
    for path in (place, *place.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return place


def import_from(place: Path) -> None:
    """Let this process find further modules of the package below *place* as well."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "atoll" and hasattr(module, "__path__"):
            module.__path__.append(str(place.joinpath(*name.split("."))))
