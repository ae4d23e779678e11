"""A root that is described, not mounted: who starts the sandbox mounts it in namespaces of its own.

Without root nothing can be mounted that the engine itself would see. The description lies beside
the mount point, made by whoever knows layers, read by whoever starts sandboxes.
"""

import os
from pathlib import Path

import msgspec


class Attached(msgspec.Struct, frozen=True):
    """A folder of the host that is seen inside at the absolute path *target*."""

    source: str
    target: str
    read_only: bool


class Description(msgspec.Struct, frozen=True):
    """What an overlay is made of, as paths on the host; `lowers` from the top."""

    lowers: tuple[str, ...]
    upper: str
    work: str
    attached: tuple[Attached, ...] = ()


def attribute(name: str) -> str:
    """Return the extended attribute that overlay looks at: its own, or the user's without root."""
    return f"{'user' if os.geteuid() else 'trusted'}.overlay.{name}"


def file(root: Path) -> Path:
    """Return where the description of the mount point *root* is."""
    return root.with_name(f"{root.name}.json")


def write(root: Path, description: Description) -> None:
    """Describe what is to be mounted at *root*; whoever reads it finds all of it or nothing."""
    draft = root.with_name(f"{root.name}.new")
    draft.write_bytes(msgspec.json.encode(description))
    draft.rename(file(root))


def read(root: Path) -> Description:
    """Return what is to be mounted at *root*.

    Raises:
        FileNotFoundError: nobody said so.
    """
    return msgspec.json.decode(file(root).read_bytes(), type=Description)
