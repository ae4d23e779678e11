"""The control group of build steps: bounded, and gone when no build runs.

An OCI runtime that is killed leaves its group behind. All of ours are below one parent, so what
is left can be found and removed; a group that still has a process refuses.
"""

from contextlib import suppress
from pathlib import Path

PARENT = "atoll-builds"

_ROOT = Path("/sys/fs/cgroup")
_PIDS = 4_096
"""Processes of all steps: a parallel compiler run fits, a fork bomb does not reach the host."""


def prepare(root: Path = _ROOT) -> None:
    """Make the parent where processes are counted, and bound it. Blocking, best effort."""
    hierarchy = root if (root / "cgroup.controllers").exists() else root / "pids"
    with suppress(OSError):
        if hierarchy == root:
            (root / "cgroup.subtree_control").write_text("+pids")
        (hierarchy / PARENT).mkdir(exist_ok=True)
        (hierarchy / PARENT / "pids.max").write_text(str(_PIDS))


def clear(root: Path = _ROOT) -> None:
    """Remove the parent in every hierarchy, as far as nothing runs in it. Blocking."""
    for parent in (root / PARENT, *root.glob(f"*/{PARENT}")):
        for group in (*parent.glob("*/"), parent):
            with suppress(OSError):
                group.rmdir()
