"""A build gets a copy of the context in which nothing outside is found."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from atoll.errors import (
    FileTooLargeError,
    InvalidImageError,
    NotDirectoryError,
    TooManyLinksError,
)
from atoll.images.context import receive, take

MAX = 100_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "folder"
    (folder / "src").mkdir(parents=True)
    (folder / "Dockerfile").write_text("FROM a\n")
    (folder / "src/app.py").write_text("print()")
    return folder


def names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def test_files_keep_mode_and_time(folder: Path, tmp_path: Path) -> None:
    """The builder's cache compares them."""
    (folder / "src/app.py").chmod(0o750)
    os.utime(folder / "src/app.py", (1000, 1000))
    assert take(folder, "Dockerfile", tmp_path / "copy", MAX) == "FROM a\n"
    info = (tmp_path / "copy/src/app.py").stat()
    assert (info.st_mode & 0o7777, info.st_mtime) == (0o750, 1000)


def test_links_are_copied_as_links(folder: Path, tmp_path: Path) -> None:
    (folder / "file").symlink_to(tmp_path / "secret")
    (folder / "dir").symlink_to(tmp_path)
    take(folder, "Dockerfile", tmp_path / "copy", MAX)
    assert (tmp_path / "copy/file").is_symlink()
    assert (tmp_path / "copy/dir").is_symlink()


@pytest.mark.parametrize(
    "name", ["missing", "link", "dirlink/secret", "../secret", "src", "src/app.py/x", "pipe"]
)
def test_the_dockerfile_is_a_file_of_the_context(folder: Path, tmp_path: Path, name: str) -> None:
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "dirlink").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    with pytest.raises((InvalidImageError, TooManyLinksError, NotDirectoryError)):
        take(folder, name, tmp_path / "copy", MAX)


def test_ignored_files_are_neither_copied_nor_counted(folder: Path, tmp_path: Path) -> None:
    (folder / ".dockerignore").write_text("big\nnode_modules\n!node_modules/keep\n**/*.log\n")
    (folder / "big").write_bytes(bytes(MAX * 2))
    (folder / "node_modules/x").mkdir(parents=True)
    (folder / "node_modules/x/y").write_bytes(bytes(MAX * 2))
    (folder / "node_modules/keep").write_text("k")
    (folder / "src/a.log").write_text("l")
    take(folder, "Dockerfile", tmp_path / "copy", MAX)
    assert names(tmp_path / "copy") == [
        ".dockerignore", "Dockerfile", "node_modules", "node_modules/keep", "src", "src/app.py",
    ]  # fmt: skip


def test_a_dockerfile_may_have_an_ignore_file_of_its_own(folder: Path, tmp_path: Path) -> None:
    (folder / ".dockerignore").write_text("src\n")
    (folder / "Dockerfile.dockerignore").write_text("Dockerfile*\n")
    take(folder, "Dockerfile", tmp_path / "copy", MAX)
    assert names(tmp_path / "copy") == [".dockerignore", "src", "src/app.py"]


def test_a_context_over_the_limit_is_refused(folder: Path, tmp_path: Path) -> None:
    with (folder / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(FileTooLargeError) as caught:
        take(folder, "Dockerfile", tmp_path / "copy", MAX)
    assert caught.value.context["limit"] == MAX


def test_a_fifo_is_refused_by_name_and_never_opened(folder: Path, tmp_path: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(InvalidImageError, match="pipe"):
        take(folder, "Dockerfile", tmp_path / "copy", MAX)


def test_a_folder_that_is_not_there_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidImageError):
        take(tmp_path / "missing", "Dockerfile", tmp_path / "copy", MAX)


def _upload(*members: tarfile.TarInfo) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for info in members:
            tar.addfile(info, io.BytesIO(bytes(info.size)))
    buffer.seek(0)
    return buffer


def _info(name: str, kind: bytes = tarfile.REGTYPE, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    for key, value in fields.items():
        setattr(info, key, value)
    return info


def test_an_upload_belongs_to_the_engine_whatever_it_says(tmp_path: Path) -> None:
    upload = _upload(_info("a/f", uid=4711, gid=4711, size=3), _info(".wh.f"))
    receive(upload, tmp_path, MAX)
    assert (tmp_path / "a/f").stat().st_uid == os.getuid()
    assert (tmp_path / "a/f").stat().st_size == 3
    assert (tmp_path / ".wh.f").is_file()


@pytest.mark.parametrize(
    "upload",
    [
        _upload(_info("../out")),
        _upload(_info("d", tarfile.SYMTYPE, linkname=".."), _info("d/out")),
        _upload(_info("h", tarfile.LNKTYPE, linkname="/etc/hostname")),
        _upload(_info("big", size=MAX)),
        io.BytesIO(b"not a tar archive" * 100),
    ],
)
def test_a_hostile_upload_is_refused(tmp_path: Path, upload: io.BytesIO) -> None:
    (tmp_path / "target").mkdir()
    with pytest.raises(InvalidImageError):
        receive(upload, tmp_path / "target", MAX)
    assert os.listdir(tmp_path) == ["target"]
