import os
from pathlib import Path

import pytest

from atoll.storage import identity

pytestmark = pytest.mark.e2e


def test_the_file_system_id_of_an_overlay_is_removed_and_nothing_else(folder: Path) -> None:
    os.setxattr(folder, "trusted.overlay.uuid", b"0" * 16)
    os.setxattr(folder, "trusted.overlay.impure", b"y")
    identity.forget(folder)
    identity.forget(folder)
    assert os.listxattr(folder) == ["trusted.overlay.impure"]
