import io
import os
import stat
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atoll import errors
from atoll.wire.files import Archive
from atoll.wire.frames import Kind
from integration.agent.files_calls import NOBODY, Call, call, shared_directory


def _download(path: object, **fields: Any) -> tuple[dict[str, tarfile.TarInfo], Any, bytes]:
    answer = call("download", path=str(path), **fields)
    assert msgspec.convert(answer.reply, Archive).format == "tar"
    with tarfile.open(fileobj=io.BytesIO(answer.data), errors="surrogateescape") as archive:
        return {member.name: member for member in archive}, answer.end, answer.data


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "sub/empty").mkdir(parents=True)
    (tmp_path / "f").write_bytes(b"content")
    (tmp_path / "f").chmod(0o4755)
    (tmp_path / "same").hardlink_to(tmp_path / "f")
    (tmp_path / "sub/link").symlink_to("../f")
    (tmp_path / "sub/large").write_bytes(b"x" * 3_000_001)
    (tmp_path / ("long" * 60)).write_bytes(b"")
    os.mkfifo(tmp_path / "fifo")
    with open(os.fsencode(tmp_path) + b"/bad\xff", "wb"):
        pass
    return tmp_path


def test_a_tree_is_packed_with_all_that_can_be(tree: Path) -> None:
    members, end, data = _download(tree)
    assert sorted(members) == sorted(
        ["bad\udcff", "f", "long" * 60, "same", "sub", "sub/empty", "sub/large", "sub/link"]
    )
    assert members["f"].mode == 0o755  # no set-id bits leave the sandbox
    assert members["same"].islnk()
    assert members["same"].linkname == "f"
    assert members["sub/link"].linkname == "../f"
    assert (end["files"], end["size"], end["changed"]) == (8, 3_000_008, [])
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        large = archive.extractfile("sub/large")
        assert large
        assert large.read() == b"x" * 3_000_001


def test_every_name_of_a_file_has_its_content_on_request(tree: Path) -> None:
    """Some readers take no archive with hard links."""
    members, end, _ = _download(tree, hard_links=False)
    assert members["same"].isreg()
    assert (members["same"].size, end["size"]) == (7, 3_000_015)


def test_one_file_is_packed_alone(tree: Path) -> None:
    assert list(_download(tree / "f")[0]) == ["f"]
    assert _download(tree / "sub/link")[0]["link"].isreg()


def test_ignore_files_are_respected_on_request(tmp_path: Path) -> None:
    for name in (".git/config", "a.log", "keep.log", "build/x", "sub/b.log", "sub/c", "sub/build"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("*.log\n!keep.log\nbuild/\n")
    (tmp_path / "sub/.gitignore").write_text("!b.log\nc\n")
    found = sorted(_download(tmp_path, gitignore=True)[0])
    assert found == [
        ".gitignore", "keep.log", "sub", "sub/.gitignore", "sub/b.log", "sub/build",
    ]  # fmt: skip
    assert "a.log" in _download(tmp_path)[0]


def test_excludes_are_left_out(tree: Path) -> None:
    assert sorted(_download(tree, excludes="sub/l*,long*,bad*,same")[0]) == [
        "f",
        "sub",
        "sub/empty",
    ]


@pytest.mark.skipif(os.getuid() != 0, reason="changes the user id")
def test_what_cannot_be_read_is_named() -> None:
    with shared_directory() as top:
        (top / "closed").mkdir(mode=0o700)
        (top / "secret").write_bytes(b"x")
        (top / "secret").chmod(0o600)
        (top / "open").write_bytes(b"x")
        members, end, _ = _download(top, uid=NOBODY)
        assert list(members) == ["open"]
        assert end["skipped"] == ["closed", "secret"]


def test_a_file_that_shrinks_is_named_and_the_archive_stays_whole(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * (30 << 20))
    (tmp_path / "b").write_bytes(b"after")
    running = Call("download", path=str(tmp_path))
    frames = running.frames()
    assert next(frames).kind == Kind.REPLY
    data = next(frames).payload
    os.truncate(tmp_path / "a", 3 << 20)
    rest = list(frames)
    running.finish()
    assert rest[-1].kind == Kind.END
    assert msgspec.json.decode(rest[-1].payload)["changed"] == ["a"]
    data += b"".join(frame.payload for frame in rest[:-1])
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        after = archive.extractfile("b")
        assert after
        assert after.read() == b"after"


def test_a_missing_path_is_typed(tmp_path: Path) -> None:
    with pytest.raises(errors.FileNotFoundError):
        call("download", path=str(tmp_path / "nope"))


def test_a_download_uploads_to_the_same_tree(tree: Path) -> None:
    _, _, data = _download(tree)
    target = tree.parent / f"{tree.name}-again"
    call("upload", path=str(target), body=[data])
    assert (target / "sub/large").read_bytes() == b"x" * 3_000_001
    assert (target / "same").stat().st_ino == (target / "f").stat().st_ino
    assert stat.S_IMODE((target / "f").stat().st_mode) == 0o755
    assert os.path.lexists(os.fsencode(target) + b"/bad\xff")
