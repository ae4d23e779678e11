"""Names with a meaning in layers stay inside, and a layer is what its image says."""

import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from atoll.errors import InvalidImageError
from atoll.images.archive import Limits
from atoll.images.layers import unpack


def archive(*names: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.uid, info.gid = os.getuid(), os.getgid()
            tar.addfile(info)
    return buffer.getvalue()


def put(root: Path, data: bytes) -> list[str]:
    target = root / "layer"
    unpack(io.BytesIO(data), target, hashlib.sha256(data).hexdigest(), Limits())
    return sorted(str(path.relative_to(target)) for path in target.rglob("*"))


@pytest.mark.parametrize("name", [".wh.", ".wh..", ".wh...", "a/.wh..."])
def test_a_whiteout_of_something_outside_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidImageError):
        put(tmp_path, archive(name))


def test_bookkeeping_of_old_union_file_systems_is_left_out(tmp_path: Path) -> None:
    assert put(tmp_path, archive(".wh..wh.plnk", ".wh..wh.aufs", "f")) == ["f"]


def test_content_that_is_not_what_the_image_says_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidImageError, match="not what the image says"):
        unpack(io.BytesIO(archive("f")), tmp_path / "layer", "0" * 64, Limits())
