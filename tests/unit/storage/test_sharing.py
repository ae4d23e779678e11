import os
from pathlib import Path

import pytest

from atoll.errors import FilesystemError
from atoll.storage import sharing


@pytest.fixture
def cloned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have files be copied, as where no blocks are shared."""

    def copy(source: int, name: bytes, made: int) -> None:
        file = os.open(name, os.O_RDONLY, dir_fd=source)
        os.write(made, os.read(file, 1 << 20))
        os.close(file)

    monkeypatch.setattr(sharing, "_clone", copy)


def opened(path: Path) -> int:
    path.mkdir(exist_ok=True)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def tree(top: Path) -> int:
    fd = opened(top)
    (top / "d" / "empty").mkdir(parents=True)
    (top / "d" / "f").write_text("text")
    (top / "d" / "f").chmod(0o640)
    os.link(top / "d" / "f", top / "hard")
    (top / "link").symlink_to("/nowhere")
    os.utime(top / "d" / "f", (5, 5))
    os.utime(top / "d", (6, 6))
    return fd


@pytest.mark.usefixtures("cloned")
def test_all_is_as_it_was(tmp_path: Path) -> None:
    source, target = tree(tmp_path / "a"), opened(tmp_path / "b")
    told = sharing.share(source, target)
    copy = tmp_path / "b"
    assert (copy / "d" / "f").read_text() == "text"
    assert (copy / "hard").stat().st_ino == (copy / "d" / "f").stat().st_ino
    assert (copy / "link").readlink() == Path("/nowhere")
    assert list((copy / "d" / "empty").iterdir()) == []
    found = (copy / "d" / "f").stat()
    assert (found.st_mode & 0o7777, found.st_mtime, (copy / "d").stat().st_mtime) == (0o640, 5, 6)
    assert told == sharing.summary(source) == sharing.summary(target)
    with pytest.raises(FileExistsError):
        sharing.share(source, target)
    os.close(source)
    os.close(target)


@pytest.mark.parametrize("change", ["mode", "time", "size", "gone", "more", "link"])
def test_the_summary_tells_of_every_change(tmp_path: Path, change: str) -> None:
    top = tmp_path / "a"
    source = tree(top)
    before = sharing.summary(source)
    if change == "mode":
        (top / "d" / "empty").chmod(0o700)
    elif change == "time":
        os.utime(top / "hard", (7, 7))
    elif change == "size":
        (top / "hard").write_text("longer text")
        os.utime(top / "hard", (5, 5))
    elif change == "gone":
        (top / "d" / "empty").rmdir()
        os.utime(top / "d", (6, 6))
    elif change == "more":
        (top / "more").touch()
    else:
        (top / "link").unlink()
        (top / "link").symlink_to("/elsewhere")
    assert sharing.summary(source) != before
    os.close(source)


def test_what_no_backup_has_is_refused(tmp_path: Path) -> None:
    source = opened(tmp_path / "a")
    os.mkfifo(tmp_path / "a" / "pipe")
    with pytest.raises(FilesystemError):
        sharing.summary(source)
    (tmp_path / "a" / "pipe").unlink()
    deep = tmp_path / "a"
    for _ in range(sharing.MAX_DEPTH + 1):
        deep /= "d"
        deep.mkdir()
    with pytest.raises(FilesystemError):
        sharing.summary(source)
    os.close(source)
