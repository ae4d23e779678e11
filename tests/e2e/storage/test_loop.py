import os
from pathlib import Path

import pytest

from atoll.storage import loop

pytestmark = pytest.mark.e2e


@pytest.fixture
def file(folder: Path) -> Path:
    path = folder / "file"
    with path.open("wb") as made:
        made.truncate(1 << 20)
    return path


def test_a_file_is_attached_once_however_often_it_is_asked_for(file: Path) -> None:
    first, device = loop.attach(file)
    second, same = loop.attach(file)
    assert device == same
    os.close(first)
    os.close(second)


def test_a_device_nobody_uses_is_gone_by_itself(file: Path) -> None:
    fd, device = loop.attach(file)
    assert os.stat(device)
    os.close(fd)
    assert loop.find(file) is None


def test_writes_reach_the_file(file: Path) -> None:
    fd, _ = loop.attach(file)
    os.write(fd, b"x" * 4096)
    os.fsync(fd)
    os.close(fd)
    assert file.read_bytes()[:4096] == b"x" * 4096


def test_a_file_that_has_grown_is_seen_in_full(file: Path) -> None:
    fd, _ = loop.attach(file)
    os.truncate(file, 2 << 20)
    loop.refresh_size(fd)
    assert os.lseek(fd, 0, os.SEEK_END) == 2 << 20
    os.close(fd)


def test_another_file_of_the_same_content_is_another_device(file: Path, folder: Path) -> None:
    other = folder / "other"
    other.write_bytes(file.read_bytes())
    first, device = loop.attach(file)
    second, different = loop.attach(other)
    assert device != different
    os.close(first)
    os.close(second)
