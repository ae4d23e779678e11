"""Deletions of a layer are seen through a real overlay mount."""

import hashlib
import io
import os
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from atoll.images.archive import Limits
from atoll.images.layers import unpack


def put(target: Path, *names: str) -> Path:
    """Unpack a layer; a name ending in ``/`` is a directory."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in names:
            info = tarfile.TarInfo(name.rstrip("/"))
            info.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            info.mode = 0o755
            tar.addfile(info, io.BytesIO(b""))
    data = buffer.getvalue()
    unpack(io.BytesIO(data), target, hashlib.sha256(data).hexdigest(), Limits())
    return target


@contextmanager
def mounted(root: Path, *layers: Path) -> Iterator[Path]:
    target = root / "mounted"
    target.mkdir()
    lowers = ":".join(map(str, reversed(layers)))
    subprocess.run(
        ["mount", "-t", "overlay", "overlay", "-o", f"ro,lowerdir={lowers}", target], check=True
    )
    try:
        yield target
    finally:
        subprocess.run(["umount", target], check=True)


def seen(root: Path, *upper: str) -> list[str]:
    lower = put(root / "lower", "d/", "d/old", "d/sub/", "d/sub/deep", "f")
    with mounted(root, lower, put(root / "upper", *upper)) as target:
        return sorted(str(path.relative_to(target)) for path in target.rglob("*"))


@pytest.mark.parametrize(
    ("upper", "expected"),
    [
        ((".wh.f",), ["d", "d/old", "d/sub", "d/sub/deep"]),
        (("d/", "d/.wh.old"), ["d", "d/sub", "d/sub/deep", "f"]),
        (("d/.wh.sub",), ["d", "d/old", "f"]),
        (("d/", "d/.wh..wh..opq", "d/new"), ["d", "d/new", "f"]),
        (("d/", "d/new", "d/.wh..wh..opq"), ["d", "d/new", "f"]),
        ((".wh.d", "d/", "d/new"), ["d", "d/new", "f"]),
        (("d/", "d/new", ".wh.d"), ["d", "d/new", "f"]),
        ((".wh.d", "d"), ["d", "f"]),
        (("d", ".wh.d"), ["d", "f"]),
        (("d/", "d/new"), ["d", "d/new", "d/old", "d/sub", "d/sub/deep", "f"]),
    ],
)
def test_what_a_layer_deletes_is_not_seen(
    tmp_path: Path, upper: tuple[str, ...], expected: list[str]
) -> None:
    assert seen(tmp_path, *upper) == expected


def test_owners_and_capabilities_are_the_images_own(tmp_path: Path) -> None:
    value = bytes.fromhex("0100000200200000000000000000000000000000")  # cap_net_raw=ep
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("ping")
        info.uid, info.gid, info.mode = 1234, 5678, 0o4755
        text = value.decode("utf-8", "surrogateescape")
        info.pax_headers = {"SCHILY.xattr.security.capability": text}
        tar.addfile(info, io.BytesIO(b""))
    data = buffer.getvalue()
    unpack(io.BytesIO(data), tmp_path / "layer", hashlib.sha256(data).hexdigest(), Limits())
    file = tmp_path / "layer/ping"
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 5678)
    assert file.stat().st_mode & 0o7777 == 0o4755
    assert os.getxattr(file, "security.capability") == value
