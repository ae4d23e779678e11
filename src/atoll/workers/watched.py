"""Which files of a project `atoll dev` reloads for.

Only what a Worker or its image is made of: what a Worker, or the shell that redirects our own
output, writes beside it must not start a reload, which would write the next line.
"""

import fnmatch
import os
from collections.abc import Iterable
from pathlib import Path

_ANYWHERE = (
    "*.py", "wrangler.json", "wrangler.jsonc", "wrangler.toml", ".dev.vars", ".env",
    "Dockerfile", "Dockerfile.*", "*.Dockerfile", ".dockerignore",
    "requirements*.txt", "pyproject.toml", "package.json", "package-lock.json",
)  # fmt: skip
_NEVER = ("*.log", "*.out", "*.pid", "*.db", "*.db-*", "*.sqlite*", "nohup.out", "*.pyc", "*~")


class Watched:
    """Tells whether a changed file matters.

    In the folder of the Worker's entry and in the build contexts of images every file does, logs
    excepted. The root itself does not count as such a folder: people run things there.

    Args:
        root: the project's folder.
        entry: the folder of the Worker's entry.
        contexts: build contexts of its images.
        outputs: descriptors whose files never matter.
    """

    def __init__(
        self, root: Path, entry: Path, contexts: Iterable[Path], outputs: Iterable[int] = (1, 2)
    ) -> None:
        self._contexts = [folder for folder in contexts if root in folder.parents]
        self._folders = [*self._contexts, *([entry] if root in entry.parents else [])]
        self._outputs = {_identity(fd) for fd in outputs} - {None}

    def matters(self, path: Path) -> bool:
        """Return whether a change of *path* is a reason to reload."""
        if _like(path.name, _NEVER) or _identity(path) in self._outputs:
            return False
        inside = any(folder in path.parents for folder in self._folders)
        return inside or _like(path.name, _ANYWHERE)

    def in_image(self, path: Path) -> bool:
        """Return whether *path* is in a build context, so that an image may contain it."""
        return any(folder in path.parents for folder in self._contexts)


def _like(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _identity(file: int | Path) -> tuple[int, int] | None:
    try:
        found = os.fstat(file) if isinstance(file, int) else file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
