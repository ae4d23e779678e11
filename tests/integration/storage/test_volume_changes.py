import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from atoll.errors import (
    FileExistsError,
    FileNotFoundError,
    FilesystemError,
    NotDirectoryError,
    SecurityError,
    ValidationFailedError,
)
from atoll.storage import volume_changes
from atoll.storage.volume_changes import dismantle, make_folder, move, remove


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    for name in ("upper", "work", "outside/kept"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "outside" / "secret").write_text("secret")
    return tmp_path


@pytest.fixture
def upper(layer: Path) -> Path:
    return layer / "upper"


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def cleared(layer: Path, path: str) -> None:
    gone = remove(layer, path, recursive=True)
    assert gone is None or dismantle(gone)


def test_folders_are_made_with_those_on_the_way(layer: Path, upper: Path) -> None:
    make_folder(layer, "a/b/c", parents=True)
    make_folder(layer, "a/b/c", parents=True)
    make_folder(layer, "", parents=True)
    assert tree(upper) == ["a", "a/b", "a/b/c"]
    assert (upper / "a").stat().st_mode & 0o7777 == 0o755


def test_one_folder_is_made_when_its_place_is_there(layer: Path, upper: Path) -> None:
    make_folder(layer, "a", parents=False)
    with pytest.raises(FileExistsError):
        make_folder(layer, "a", parents=False)
    with pytest.raises(FileNotFoundError):
        make_folder(layer, "none/b", parents=False)
    (upper / "f").touch()
    for parents in (True, False):
        with pytest.raises(NotDirectoryError):
            make_folder(layer, "f/b", parents=parents)


def test_a_move_is_whole_and_never_over_what_is_there(layer: Path, upper: Path) -> None:
    (upper / "a" / "deep").mkdir(parents=True)
    (upper / "b").mkdir()
    for name, text in (("a/f", "1"), ("b/g", "2")):
        (upper / name).write_text(text)
    move(layer, "a", "b/moved", overwrite=False)
    assert tree(upper) == ["b", "b/g", "b/moved", "b/moved/deep", "b/moved/f"]
    with pytest.raises(FileExistsError):
        move(layer, "b/moved/f", "b/g", overwrite=False)
    move(layer, "b/moved/f", "b/g", overwrite=True)
    assert (upper / "b" / "g").read_text() == "1"


def test_what_cannot_be_moved_is_said(layer: Path, upper: Path) -> None:
    (upper / "a" / "b").mkdir(parents=True)
    (upper / "full" / "c").mkdir(parents=True)
    for path, target, error in (
        ("none", "x", FileNotFoundError),
        ("a", "none/x", FileNotFoundError),
        ("a", "a/b/c", ValidationFailedError),
        ("", "x", ValidationFailedError),
        ("a", "", ValidationFailedError),
        ("a", "full", FileExistsError),
    ):
        with pytest.raises(error):
            move(layer, path, target, overwrite=True)
    assert tree(upper) == ["a", "a/b", "full", "full/c"]


def test_no_link_is_followed_and_links_go_themselves(layer: Path, upper: Path) -> None:
    (upper / "out").symlink_to(layer / "outside")
    (upper / "f").touch()
    changes: list[Callable[[], object]] = [
        lambda: make_folder(layer, "out/new", parents=True),
        lambda: make_folder(layer, "out/new", parents=False),
        lambda: move(layer, "out/secret", "stolen", overwrite=False),
        lambda: move(layer, "f", "out/f", overwrite=True),
        lambda: remove(layer, "out/kept", recursive=True),
    ]
    for change in changes:
        with pytest.raises(SecurityError):
            change()
    move(layer, "out", "again", overwrite=False)
    cleared(layer, "again")
    assert tree(upper) == ["f"]
    assert tree(layer / "outside") == ["kept", "secret"]


def test_a_folder_goes_with_its_content_only_when_asked(layer: Path, upper: Path) -> None:
    (upper / "a").mkdir()
    (upper / "a" / "f").touch()
    (upper / "empty").mkdir()
    with pytest.raises(FilesystemError, match="not empty"):
        remove(layer, "a", recursive=False)
    for path in ("empty", "a/f", "a"):
        assert remove(layer, path, recursive=False) is None
    assert tree(upper) == []
    with pytest.raises(FileNotFoundError):
        remove(layer, "a", recursive=True)
    with pytest.raises(ValidationFailedError):
        remove(layer, "", recursive=True)


def test_a_removal_is_one_step_that_the_next_engine_finishes(layer: Path, upper: Path) -> None:
    (upper / "a" / "b").mkdir(parents=True)
    (upper / "a" / "b" / "f").touch()
    assert remove(layer, "a", recursive=True)
    assert tree(upper) == []
    assert len(tree(layer / "work")) == 3, "an engine that dies here leaves it"
    volume_changes.sweep(layer)
    assert tree(layer / "work") == []


def test_no_depth_is_too_deep_to_remove(layer: Path, upper: Path) -> None:
    """Deeper than Python recurses, a path is long, and a process may have descriptors."""
    here = os.open(upper, os.O_RDONLY)
    for _ in range(2_000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    cleared(layer, "d")
    assert list(upper.iterdir()) == list((layer / "work").iterdir()) == []


def test_links_and_special_files_in_a_tree_go_as_they_are(layer: Path, upper: Path) -> None:
    (upper / "a").mkdir()
    (upper / "a" / "folder").symlink_to(layer / "outside")
    (upper / "a" / "loop").symlink_to("loop")
    os.mkfifo(upper / "a" / "pipe")
    cleared(layer, "a")
    assert tree(layer / "outside") == ["kept", "secret"]
    assert tree(layer / "work") == []


def test_somebody_who_still_writes_in_it_does_not_hold_the_removal_up_for_ever(
    layer: Path, upper: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (upper / "a").mkdir()
    inside, over = os.open(upper / "a", os.O_RDONLY), threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            with suppress(OSError):  # the folder itself went
                os.mkdir(f"d{number}", dir_fd=inside)
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        gone = remove(layer, "a", recursive=True)
        assert gone
        with monkeypatch.context() as patched:
            patched.setattr(volume_changes, "PATIENCE", 0.2)
            dismantle(gone)
    finally:
        over.set()
        writer.join()
        os.close(inside)
    assert list(upper.iterdir()) == []
    volume_changes.sweep(layer)
    assert list((layer / "work").iterdir()) == []
