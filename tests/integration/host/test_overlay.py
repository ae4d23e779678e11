import os
from pathlib import Path

import pytest

from atoll.host import overlay


def test_a_description_is_read_as_it_was_written(tmp_path: Path) -> None:
    root = tmp_path / "rootfs"
    wanted = overlay.Description(
        ("/top", "/bottom"), "/layer/upper", "/layer/work", (overlay.Attached("/v", "/data", True),)
    )
    overlay.write(root, wanted)
    assert overlay.read(root) == wanted
    assert [path.name for path in tmp_path.iterdir()] == ["rootfs.json"]


def test_a_root_that_nobody_described_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        overlay.read(tmp_path / "rootfs")


def test_the_attribute_is_one_that_this_user_may_set(tmp_path: Path) -> None:
    os.setxattr(tmp_path, overlay.attribute("opaque"), b"y")
    assert overlay.attribute("opaque").endswith(".overlay.opaque")
