"""Whether a registry is there, for images something else can stand in for.

A registry that drops packets would make every start wait for a connection that never comes. So
it is asked shortly before a long pull is begun, and a failure is remembered for an hour.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from atoll.host import process
from atoll.images.reference import Reference

_TIMEOUT = 10.0
"""Seconds for one small answer of a registry."""

_REMEMBER = 3_600.0
"""Seconds for which a failure is remembered; `forget` ends it."""


class Reach:
    """Remembers in files under *folder*, for all processes of the host."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def offers(self, wanted: Reference, env: Mapping[str, str]) -> bool:
        """Whether the image can be had from its registry, as far as is known for the last hour."""
        mark = self._mark(wanted)
        if mark.exists() and time.time() - mark.stat().st_mtime < _REMEMBER:
            return False
        if await _answers(wanted, env):
            return True
        self.note_failure(wanted)
        return False

    def note_failure(self, wanted: Reference) -> None:
        """Remember that the image was not to be had."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._mark(wanted).touch()

    def forget(self, wanted: Reference) -> None:
        """Ask again the next time."""
        self._mark(wanted).unlink(missing_ok=True)

    def _mark(self, wanted: Reference) -> Path:
        return self._folder / quote(str(wanted), safe="")


async def _answers(wanted: Reference, env: Mapping[str, str]) -> bool:
    argv = ["skopeo", "inspect", "--raw", f"docker://{wanted}"]
    try:
        return (await process.run(argv, timeout=_TIMEOUT, env=env)).code == 0
    except (TimeoutError, FileNotFoundError):
        return False
