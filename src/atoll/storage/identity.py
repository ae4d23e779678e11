"""What an overlay writes into a layer that copies of the layer must not have in common."""

import os
from pathlib import Path

from atoll.host import overlay

_FILE_SYSTEM_ID = overlay.attribute("uuid")
"""Extended attribute of ``upper``; shown inside by ``statfs``, made anew where it is missing."""


def forget(upper: Path) -> None:
    """Let the next mount of the layer be a file system of its own."""
    if _FILE_SYSTEM_ID in os.listxattr(upper):
        os.removexattr(upper, _FILE_SYSTEM_ID)
