import errno
import io
import os
import struct
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from atoll import errors
from atoll.agent import kernel
from atoll.wire import attributes
from atoll.wire.frames import Kind
from integration.agent.files_calls import Call, call


def packed(path: Path, **fields: Any) -> bytes:
    return call("backup", path=str(path), **fields).data


def names(archive: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return sorted(opened.getnames())


def put_back(path: Path, archive: bytes) -> None:
    pieces = [archive[start : start + (1 << 20)] for start in range(0, len(archive), 1 << 20)]
    call("restore", path=str(path), body=pieces)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    top = tmp_path / "tree"
    for name in ("a.log", "keep.log", "node_modules/m", "sub/node_modules/m", "sub/build/x", "ünï"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(name)
    (top / "empty").mkdir()
    (top / "link").symlink_to("/nowhere")
    os.link(top / "keep.log", top / "hard")
    (top / "a.log").chmod(0o600)
    (top / "sub").chmod(0o750)
    return top


def test_all_of_it_comes_back_as_it_was(tree: Path, tmp_path: Path) -> None:
    os.truncate(tree / "a.log", 40 << 20)
    archive = packed(tree)
    target = tmp_path / "new/place"
    put_back(target, archive)
    assert sorted(p.relative_to(target) for p in target.rglob("*")) == sorted(
        p.relative_to(tree) for p in tree.rglob("*")
    )
    for name in ("a.log", "sub", "empty", "ünï"):
        ours, theirs = (target / name).stat(), (tree / name).stat()
        assert (ours.st_mode, ours.st_size, int(ours.st_mtime)) == (
            theirs.st_mode,
            theirs.st_size,
            int(theirs.st_mtime),
        )
    assert os.readlink(target / "link") == "/nowhere"
    assert (target / "hard").samefile(target / "keep.log")
    assert (target / "a.log").stat().st_blocks * 512 < 1 << 20, "holes stay holes"


@pytest.mark.timeout(10)
def test_a_file_of_terabytes_is_refused_before_it_is_read(tree: Path) -> None:
    """It takes nothing of the disk; its zeros would take hours."""
    os.truncate(tree / "a.log", 10 << 40)
    with pytest.raises(errors.BackupCreateFailedError, match=r"'a\.log' of 10,995,116,277,760"):
        packed(tree, max_content=1 << 35)
    assert "a.log" not in names(packed(tree, max_content=1 << 20, excludes=["a.log"]))


def test_all_files_together_are_no_more_than_what_a_backup_may_have(tree: Path) -> None:
    for name in ("a.log", "keep.log", "ünï"):
        os.truncate(tree / name, 100_000)
    assert "ünï" in names(packed(tree, max_content=301_000))
    with pytest.raises(errors.BackupCreateFailedError, match="holes of its files included"):
        packed(tree, max_content=299_000)


def test_what_is_there_is_replaced_and_the_directory_keeps_its_mode(
    tree: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o711)
    (target / "old").write_text("old")
    put_back(target, packed(tree))
    assert not (target / "old").exists()
    assert (target / "keep.log").read_text() == "keep.log"
    assert target.stat().st_mode & 0o777 == 0o711
    assert sorted(os.listdir(tmp_path)) == ["target", "tree"]


def no_exchange(*_: object) -> None:
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


def test_a_kernel_that_cannot_exchange_replaces_in_two_steps(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "exchange", no_exchange)
    test_what_is_there_is_replaced_and_the_directory_keeps_its_mode(tree, tmp_path)


def test_two_steps_of_which_the_second_fails_leave_what_was_there(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, target, rename = packed(tree), tmp_path / "target", os.rename
    target.mkdir()
    (target / "old").touch()

    def full(source: bytes, name: bytes, **where: int) -> None:
        if name == b"target" and not source.endswith(b".old"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rename(source, name, **where)

    monkeypatch.setattr(kernel, "exchange", no_exchange)
    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(errors.NoSpaceError):
        put_back(target, archive)
    assert os.listdir(target) == ["old"]
    assert sorted(os.listdir(tmp_path)) == ["target", "tree"]


def test_excludes_and_ignore_files_mean_what_git_means(tree: Path) -> None:
    (tree / ".gitignore").write_text("*.log\n!keep.log\n")
    (tree / "sub/.gitignore").write_text("/build/\n")
    kept = names(packed(tree, gitignore=True, excludes=["**/node_modules", "!sub/node_modules"]))
    whole = {".gitignore", "empty", "hard", "keep.log", "link", "sub", "sub/.gitignore", "ünï"}
    assert set(kept) == whole | {"sub/node_modules", "sub/node_modules/m"}
    assert "a.log" in names(packed(tree, excludes=["/sub"]))
    assert "sub" not in names(packed(tree, excludes=["/sub"]))


@pytest.mark.parametrize("op", ["backup", "restore"])
@pytest.mark.parametrize("linked", ["itself", "above"])
def test_a_link_on_the_way_is_a_refusal(tmp_path: Path, op: str, linked: str) -> None:
    """Whoever swaps the directory for a link must not move other files."""
    (tmp_path / "real/dir").mkdir(parents=True)
    (tmp_path / "real/dir/mine").touch()
    if linked == "itself":
        (tmp_path / "link").symlink_to(tmp_path / "real/dir")
        path = tmp_path / "link"
    else:
        (tmp_path / "link").symlink_to(tmp_path / "real")
        path = tmp_path / "link/dir"
    with pytest.raises(errors.SecurityError):
        call(op, path=str(path), body=[b""] if op == "restore" else None)
    assert os.listdir(tmp_path / "real/dir") == ["mine"]


def test_a_broken_archive_leaves_the_target_untouched(tree: Path, tmp_path: Path) -> None:
    archive = packed(tree)
    target = tmp_path / "target"
    target.mkdir()
    (target / "old").write_text("old")
    for bad in (archive[:1000], b"garbage" * 200):
        with pytest.raises(errors.ValidationFailedError):
            put_back(target, bad)
        assert [p.name for p in target.iterdir()] == ["old"]
    assert sorted(os.listdir(tmp_path)) == ["target", "tree"]


def test_an_archive_that_leads_out_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../evil"), io.BytesIO())
    target = tmp_path / "target"
    with pytest.raises(errors.SecurityError):
        put_back(target, buffer.getvalue())
    assert os.listdir(tmp_path) == []


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.NotDirectoryError):
        packed(tmp_path / "file")
    with pytest.raises(errors.FileNotFoundError):
        packed(tmp_path / "none")
    with pytest.raises(errors.NotDirectoryError):
        put_back(tmp_path / "file/below", b"")


def access(*entries: tuple[int, int, int]) -> bytes:
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


ANY = 2**32 - 1
LIST = access((1, 7, ANY), (2, 7, 1_234), (4, 4, ANY), (16, 7, ANY), (32, 0, ANY))


def attributes_of(path: Path) -> dict[str, bytes]:
    return {name: os.getxattr(path, name) for name in os.listxattr(path)}


@pytest.fixture
def attributed(tree: Path) -> Path:
    try:
        os.setxattr(tree / "a.log", "user.note", b"\x00\xff")
        os.setxattr(tree / "sub", "user.a=b", b"y")
        os.setxattr(tree / "keep.log", "system.posix_acl_access", LIST)
        os.setxattr(tree / "sub", "system.posix_acl_default", LIST)
    except OSError:
        pytest.skip("no extended attributes or access lists here")
    return tree


def test_attributes_and_access_lists_come_back(attributed: Path, tmp_path: Path) -> None:
    target = tmp_path / "new"
    put_back(target, packed(attributed))
    for name in ("a.log", "keep.log", "hard", "sub", "sub/build", "sub/build/x"):
        assert attributes_of(target / name) == attributes_of(attributed / name), name
        assert (target / name).stat().st_mode == (attributed / name).stat().st_mode
    assert (target / "keep.log").stat().st_mode & 0o777 == 0o770


def test_what_is_put_back_has_no_list_of_the_place(attributed: Path, tmp_path: Path) -> None:
    """The directory keeps the list that it has; what is in it has what the archive says."""
    place = tmp_path / "place"
    (place / "target").mkdir(parents=True)
    os.setxattr(place, "system.posix_acl_default", LIST)
    os.setxattr(place / "target", "system.posix_acl_default", LIST)
    before = attributes_of(place / "target")
    put_back(place / "target", packed(attributed))
    assert attributes_of(place / "target") == before
    assert attributes_of(place / "target/a.log") == {"user.note": b"\x00\xff"}
    put_back(place / "new", packed(attributed))
    assert attributes_of(place / "new/empty") == attributes_of(place / "new") == {}


def archived(headers: dict[str, str]) -> bytes:
    """Return an archive of a file in a directory, both with these headers."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for kind, name in ((tarfile.DIRTYPE, "d"), (tarfile.REGTYPE, "d/f")):
            member = tarfile.TarInfo(name)
            member.type, member.pax_headers = kind, headers
            tar.addfile(member)
    return target.getvalue()


def test_attributes_of_others_are_never_set(attributed: Path) -> None:
    """A file capability is like a set-id bit, which is left out too."""
    capability = "\x01\0\0\x02\0\x20" + 14 * "\0"
    told = {
        "SCHILY.xattr.trusted.overlay.redirect": "/etc",
        "SCHILY.xattr.user.overlay.opaque": "y",
        "SCHILY.xattr.security.capability": capability,
        "SCHILY.xattr.user.kept": "y",
    }
    put_back(attributed, archived(told))
    for name in ("d", "d/f"):
        assert attributes_of(attributed / name) == {"user.kept": b"y"}


@pytest.mark.parametrize(
    "headers",
    [{"system.posix_acl_access": "\x02\0\0\0junk"}, {"user.": "x"},
     {f"user.{n}": "x" * 60_000 for n in range(20)}],
)  # fmt: skip
def test_attributes_that_cannot_be_are_refused_and_nothing_changes(
    attributed: Path, headers: dict[str, str]
) -> None:
    before = sorted(os.listdir(attributed.parent)), sorted(os.listdir(attributed))
    told = {f"SCHILY.xattr.{name}": value for name, value in headers.items()}
    with pytest.raises(errors.SecurityError, match="attribute"):
        put_back(attributed, archived(told))
    assert (sorted(os.listdir(attributed.parent)), sorted(os.listdir(attributed))) == before


def test_more_attributes_than_a_backup_may_have_are_told(
    attributed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attributes, "MAX_BYTES", 100)
    os.setxattr(attributed / "a.log", "user.more", bytes(100))
    with pytest.raises(errors.BackupCreateFailedError, match=r"'a\.log' cannot be kept"):
        packed(attributed)
    packed(attributed, excludes=["a.log"])


def test_what_is_filled_from_outside_takes_the_place_when_it_is_seen(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "old").write_text("old")
    with pytest.raises(errors.ValidationFailedError):
        call("place", path=str(target), body=[b'{"entries"', b": 1}"])
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    assert (target / "old").read_text() == "old"
    call("place", path=str(target), body=[b'{"entries": 0}'])
    assert [path.name for path in tmp_path.rglob("*")] == ["target"]


def test_a_name_that_another_restore_has_taken_meanwhile_is_taken_over(
    tree: Path, tmp_path: Path
) -> None:
    archive, target = packed(tree), tmp_path / "new"
    waiting = Call("restore", path=str(target))
    waiting.send(Kind.DATA, archive[:1024])
    end = time.monotonic() + 20
    while not any(path.name.startswith(".atoll") for path in tmp_path.iterdir()):
        assert time.monotonic() < end
        time.sleep(0.01)
    call("restore", path=str(target), body=[archive])
    (target / "other").touch()
    waiting.send_body([archive[1024:]])
    waiting.answer()
    assert not (target / "other").exists()
    assert (target / "keep.log").read_text() == "keep.log"
    assert {path.name for path in tmp_path.iterdir()} == {"tree", "new"}
