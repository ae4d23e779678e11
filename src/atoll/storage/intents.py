"""Notes of what is about to be stored elsewhere: durable before the first byte of it is.

What a crash leaves in a bucket cannot be told from what is others'. A note can: it says that the
objects below one id are ours, and that no row of the store may tell of them.
"""

import os
from pathlib import Path

from atoll.host import durable


class Intents:
    """A folder with an empty file for each note.

    Args:
        folder: made when it is missing; nobody else's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self) -> None:
        """Make the folder."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def add(self, id: str) -> None:
        """Note *id*; it is durable afterwards. Idempotent. Blocking, as all of these."""
        with (self._folder / id).open("wb") as file:
            os.fsync(file.fileno())
        durable.sync(self._folder)

    def drop(self, id: str) -> None:
        """Forget *id*. Idempotent. One that a crash brings back is looked at once more."""
        (self._folder / id).unlink(missing_ok=True)

    def ids(self) -> set[str]:
        """Return all that is noted."""
        return set(os.listdir(self._folder))  # noqa: PTH208
