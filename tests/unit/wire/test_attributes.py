import errno
import os
import struct
from pathlib import Path

import pytest

from atoll.wire import attributes

LIST = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", *entry)
    for entry in ((1, 7, 2**32 - 1), (2, 7, 1_234), (4, 4, 2**32 - 1), (16, 7, 2**32 - 1), (32, 0, 2**32 - 1))
)  # fmt: skip
"""An access list: all for the owner and user 1234, reading for the group, nothing for others."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "f"
    file.touch()
    try:
        os.setxattr(file, "user.a", b"\0\xff")
    except OSError:
        pytest.skip("no extended attributes here")
    return file


def records(file: Path) -> dict[str, str]:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        return attributes.read(descriptor)
    finally:
        os.close(descriptor)


def put_back(file: Path, headers: dict[str, str], mode: int = 0o644) -> int:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        return attributes.put_back(descriptor, headers, mode)
    finally:
        os.close(descriptor)


def test_names_and_values_of_any_bytes_come_back(file: Path, tmp_path: Path) -> None:
    os.setxattr(file, "user.a=b%3D\n", b"=")
    os.setxattr(file, b"user.\xff", b"")
    again = tmp_path / "again"
    again.touch()
    assert put_back(again, records(file)) == 0o644
    assert sorted(os.listxattr(again)) == sorted(os.listxattr(file))
    for name in os.listxattr(file):
        assert os.getxattr(again, name) == os.getxattr(file, name)


@pytest.mark.parametrize(
    "name",
    ["trusted.overlay.redirect", "security.selinux", "security.capability", "user.overlay.opaque",
     "system.other", "", "user"],
)  # fmt: skip
def test_what_is_not_a_users_is_never_set(file: Path, name: str) -> None:
    before = os.listxattr(file)
    assert not attributes.of_user(name)
    put_back(file, {attributes.record(name): "y", "other": "z"})
    assert os.listxattr(file) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [(attributes.ACCESS, "y"), (attributes.DEFAULT, "\x02\0\0\0junk"), ("user.", "x"),
     ("user." + "n" * 300, "x"), ("user.x", "v" * (1 << 17)), ("user.\0", "x")],
)  # fmt: skip
def test_a_value_that_cannot_be_is_told(file: Path, name: str, value: str) -> None:
    with pytest.raises(ValueError, match=r"attribute|null"):
        put_back(file, {attributes.record(name): value})


def test_more_than_an_archive_may_have_is_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="over 1,048,576 bytes"):
        list(attributes.told({attributes.record(f"user.{n}"): "x" * 60_000 for n in range(20)}))
    monkeypatch.setattr(attributes, "MAX_BYTES", 100)
    os.setxattr(file, "user.b", b"x" * 100)
    with pytest.raises(ValueError, match="more than"):
        records(file)
    monkeypatch.setattr(attributes, "MAX_BYTES", 1_000)
    monkeypatch.setattr(attributes, "MAX_NUMBER", 1)
    with pytest.raises(ValueError, match="more than"):
        records(file)


def test_without_access_lists_the_group_has_what_it_had(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mode of such a file says 0770: of that the group would have all."""

    def unable(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "setxattr", unable)
    told = {attributes.record(attributes.ACCESS): LIST.decode("utf-8", "surrogateescape")}
    assert put_back(file, told, 0o770) == 0o740
    told = {attributes.record(attributes.ACCESS): "\x02\0\0\0x"}
    with pytest.raises(ValueError, match="not valid"):
        put_back(file, told)


def test_a_full_disk_is_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "setxattr", full)
    with pytest.raises(OSError, match="No space"):
        put_back(file, {attributes.record("user.a"): "x"})
