"""A small disk for the state directory of an engine."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

from e2e import remains
from integration.server.engines import eventually


class Disk:
    """A small ext4 with an engine's state directory."""

    def __init__(self, folder: Path) -> None:
        self.image, self.path = folder / "image", folder / "mounted"
        self.path.mkdir()
        with self.image.open("wb") as file:
            file.truncate(400 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", self.image], check=True)
        subprocess.run(["mount", "-o", "loop", self.image, self.path], check=True)

    def free(self) -> int:
        """Return how many bytes are free."""
        return os.statvfs(self.path).f_bavail * os.statvfs(self.path).f_frsize

    def leave(self, size: int) -> None:
        """Leave *size* bytes."""
        with (self.path / "filler").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(self.free() - size, 1))

    def fill(self) -> None:
        """Leave not one block."""
        with (self.path / "filler").open("wb", buffering=0) as file, suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, os.statvfs(self.path).f_bfree * 1024)
        with (self.path / "rest").open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"x" * 1024)

    def empty(self) -> None:
        for name in ("filler", "rest"):
            (self.path / name).unlink(missing_ok=True)

    def close(self) -> None:
        for state_dir in (self.path / "state", self.path):
            remains.remove(state_dir)
        # Its loop device lets the store's file go a moment after the store was unmounted.
        eventually(lambda: subprocess.run(["umount", self.path]).returncode == 0, 30)
