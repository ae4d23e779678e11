import os
import shutil
import signal
import stat
from pathlib import Path

import pytest

from atoll import errors
from integration.agent.files_calls import Call, call


def _copy(source: object, target: object, *, recursive: bool = False) -> None:
    call("copy_file", source=str(source), target=str(target), recursive=recursive)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    top = tmp_path / "tree"
    (top / "sub/empty").mkdir(parents=True)
    (top / "f").write_bytes(b"content")
    (top / "f").chmod(0o4751)
    (top / "same").hardlink_to(top / "f")
    (top / "sub/link").symlink_to("../f")
    (top / "sub/dangling").symlink_to("/nowhere")
    os.mkfifo(top / "fifo")
    (top / "sub").chmod(0o750)
    os.utime(top / "sub", (1000, 2000))
    return top


def test_a_tree_keeps_modes_links_times_and_hard_links(tree: Path) -> None:
    copy = tree.parent / "copy"
    _copy(tree, copy, recursive=True)
    assert (copy / "f").read_bytes() == b"content"
    assert stat.S_IMODE((copy / "f").stat().st_mode) == 0o751  # a copy has no set-id bits
    assert (copy / "same").stat().st_ino == (copy / "f").stat().st_ino
    assert os.readlink(copy / "sub/link") == "../f"
    assert os.readlink(copy / "sub/dangling") == "/nowhere"
    assert stat.S_ISFIFO((copy / "fifo").stat().st_mode)
    assert stat.S_IMODE((copy / "sub").stat().st_mode) == 0o750
    assert (copy / "sub").stat().st_mtime == 2000
    assert (copy / "sub/empty").is_dir()
    assert sorted(os.listdir(tree.parent)) == ["copy", "tree"]


def test_a_directory_needs_recursive(tree: Path) -> None:
    with pytest.raises(errors.IsDirectoryError):
        _copy(tree, tree.parent / "copy")


def test_a_directory_is_not_copied_into_itself(tree: Path) -> None:
    with pytest.raises(errors.ValidationFailedError):
        _copy(tree, tree / "sub/copy", recursive=True)
    assert sorted(os.listdir(tree / "sub")) == ["dangling", "empty", "link"]


def test_a_file_copied_over_another_is_a_write(tree: Path) -> None:
    target = tree.parent / "target"
    target.write_bytes(b"old and longer")
    target.chmod(0o600)
    _copy(tree / "f", target)
    assert target.read_bytes() == b"content"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_a_file_copied_onto_itself_stays(tree: Path) -> None:
    _copy(tree / "f", tree / "same")
    _copy(tree / "f", tree / "f")
    assert (tree / "f").read_bytes() == b"content"


def test_a_link_at_the_end_of_the_source_is_followed(tree: Path) -> None:
    _copy(tree / "sub/link", tree.parent / "copy")
    assert (tree.parent / "copy").read_bytes() == b"content"
    assert not (tree.parent / "copy").is_symlink()


def test_holes_stay_holes(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.write(b"start")
        file.seek(1 << 30)
        file.write(b"end")
        file.truncate((1 << 30) + (50 << 20))
    _copy(tmp_path / "sparse", tmp_path / "copy")
    copied = (tmp_path / "copy").stat()
    assert copied.st_size == (1 << 30) + (50 << 20)
    assert copied.st_blocks * 512 < 10 << 20
    with (tmp_path / "copy").open("rb") as file:
        assert file.read(5) == b"start"
        file.seek(1 << 30)
        assert file.read(4) == b"end\0"


def test_a_failed_copy_leaves_nothing(tree: Path) -> None:
    (tree.parent / "taken/full").mkdir(parents=True)
    with pytest.raises(errors.FileExistsError):
        _copy(tree, tree.parent / "taken", recursive=True)
    assert sorted(os.listdir(tree.parent)) == ["taken", "tree"]


def test_a_copy_that_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    for number in range(3000):
        (tmp_path / f"many/{number}").write_bytes(b"x")
    running = Call(
        "copy_file", source=str(tmp_path / "many"), target=str(tmp_path / "copy"), recursive=True
    )
    running.finish()
    assert os.listdir(tmp_path) == ["many"]
    for _ in range(20):  # on a busy machine it may be done before it is interrupted
        running = Call(
            "copy_file",
            source=str(tmp_path / "many"),
            target=str(tmp_path / "copy"),
            recursive=True,
        )
        while len(os.listdir(tmp_path)) < 2:
            pass
        os.kill(running.pid, signal.SIGTERM)  # the sandbox stops
        try:
            running.answer()
        except errors.OperationInterruptedError:
            break
        shutil.rmtree(tmp_path / "copy")
    else:
        pytest.fail("never interrupted")
    assert os.listdir(tmp_path) == ["many"]


def test_a_missing_source_is_told_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(errors.FileNotFoundError) as caught:
        _copy(tmp_path / "nope", tmp_path / "x")
    assert caught.value.context["path"] == str(tmp_path / "nope")
