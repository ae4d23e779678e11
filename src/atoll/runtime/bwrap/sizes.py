"""What processes without a cgroup hold of memory: what no file backs, and page tables.

What the kernel tells at once counts a page for each process that has it. After a fork that is most of them, so the
exact size of a process is its own pages and its part of those that it shares: the kernel walks its page
tables for that, which takes time where much is mapped.
"""

import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

LONGEST: Final = 0.5
"""Seconds for pages that processes of one sandbox share to be told from their own: what has not been
measured by then counts in full. 900 processes with 150 MB in common took 30 s."""

_ROUGH: Final = re.compile(r"^(?:Rss(?:Anon|Shmem)|VmPTE):\s+(\d+) kB$", re.MULTILINE)
_TABLES: Final = re.compile(r"^VmPTE:\s+(\d+) kB$", re.MULTILINE)
_EXACT: Final = re.compile(r"^Pss_(?:Anon|Shmem):\s+(\d+) kB$", re.MULTILINE)


def rough(pids: Iterable[int]) -> dict[int, int]:
    """Return the bytes of each process, too many where they share pages; 0: it has ended."""
    return {pid: _kilobytes(pid, "status", _ROUGH) << 10 for pid in pids}


def exact(known: Mapping[int, int]) -> dict[int, int]:
    """Return the bytes of each process, those of the largest exact: as many as there is time for.

    Args:
        known: `rough` of them.
    """
    found, until = dict(known), time.monotonic() + LONGEST
    for pid in sorted(known, key=known.__getitem__, reverse=True):
        if time.monotonic() >= until:
            break
        own = _kilobytes(pid, "smaps_rollup", _EXACT) + _kilobytes(pid, "status", _TABLES)
        found[pid] = own << 10
    return found


def _kilobytes(pid: int, file: str, pattern: re.Pattern[str]) -> int:
    with suppress(OSError):  # it ended
        return sum(map(int, pattern.findall(Path(f"/proc/{pid}/{file}").read_text())))
    return 0
