import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from atoll.errors import (
    FileNotFoundError,
    IsDirectoryError,
    NotDirectoryError,
    SandboxError,
    SecurityError,
    ValidationFailedError,
)
from atoll.storage import volume_changes
from atoll.storage.volume_files import Draft, clean, entries, opened


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    for name in ("upper", "work", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    return tmp_path


def write(layer: Path, path: str, data: bytes) -> str:
    draft = Draft(layer, path)
    try:
        draft.write(data)
        return draft.publish()
    finally:
        draft.close()


def read(layer: Path, path: str) -> bytes:
    file, _ = opened(layer, path)
    with file:
        return file.read()


def test_paths_lie_in_the_volume() -> None:
    assert [clean(path) for path in ("/a//b/./c", "", "/", "a/")] == ["a/b/c", "", "", "a"]
    for path in ("..", "a/../b", "a\0b"):
        with pytest.raises(ValidationFailedError):
            clean(path)


def test_what_is_written_is_read_and_its_folders_are_made(layer: Path) -> None:
    digest = write(layer, "a/b/c", b"content")
    assert read(layer, "a/b/c") == b"content"
    assert len(digest) == 64
    assert (layer / "upper" / "a" / "b" / "c").stat().st_mode & 0o7777 == 0o644


def test_a_file_that_is_replaced_keeps_its_mode_but_no_set_id(layer: Path) -> None:
    target = layer / "upper" / "f"
    target.write_text("old")
    target.chmod(0o6750)
    write(layer, "f", b"new")
    assert (target.read_text(), target.stat().st_mode & 0o7777) == ("new", 0o750)


def test_a_write_that_is_given_up_leaves_the_old_file_and_no_draft(layer: Path) -> None:
    (layer / "upper" / "f").write_text("old")
    draft = Draft(layer, "f")
    draft.write(b"half")
    draft.close()
    assert read(layer, "f") == b"old"
    assert [*(layer / "work").iterdir()] == []


def test_what_a_killed_engine_left_is_swept(layer: Path) -> None:
    draft = Draft(layer, "f")
    draft.write(b"half")
    volume_changes.sweep(layer)
    assert [*(layer / "work").iterdir()] == []
    draft.close()


@pytest.mark.parametrize("path", ["link/secret", "absolute/secret", "file", "up/f"])
def test_links_are_never_followed(layer: Path, path: str) -> None:
    upper = layer / "upper"
    (upper / "link").symlink_to("../outside")
    (upper / "absolute").symlink_to(layer / "outside")
    (upper / "file").symlink_to("../outside/secret")
    (upper / "up").symlink_to("..")
    with pytest.raises(SecurityError):
        read(layer, path)
    if "/" in path:
        with pytest.raises(SecurityError):
            write(layer, path, b"changed")
        with pytest.raises(SecurityError):
            entries(layer, path.split("/", maxsplit=1)[0], "", 10)
    assert (layer / "outside" / "secret").read_text() == "secret"
    assert sorted(os.listdir(layer / "outside")) == ["secret"]


def test_a_link_in_the_place_of_a_file_is_replaced_not_followed(layer: Path) -> None:
    (layer / "upper" / "f").symlink_to("../outside/secret")
    write(layer, "f", b"mine")
    assert read(layer, "f") == b"mine"
    assert (layer / "outside" / "secret").read_text() == "secret"


def test_a_fifo_is_refused_and_nobody_waits_for_it(layer: Path) -> None:
    os.mkfifo(layer / "upper" / "pipe")
    with pytest.raises(SecurityError, match="no regular file"):
        read(layer, "pipe")
    write(layer, "pipe", b"replaced")
    assert read(layer, "pipe") == b"replaced"


def test_folders_and_files_are_not_taken_for_each_other(layer: Path) -> None:
    write(layer, "d/f", b"")
    for call in (lambda: read(layer, "d"), lambda: write(layer, "d", b""), lambda: read(layer, "")):
        with pytest.raises(IsDirectoryError):
            call()
    with pytest.raises(IsDirectoryError):
        Draft(layer, "")
    for broken in (lambda: write(layer, "d/f/g", b""), lambda: entries(layer, "d/f", "", 1)):
        with pytest.raises(NotDirectoryError):
            broken()
    with pytest.raises(FileNotFoundError):
        read(layer, "d/none")


def test_a_folder_is_listed_in_pages_with_what_things_are(layer: Path) -> None:
    write(layer, "a", b"123")
    write(layer, "b/x", b"")
    (layer / "upper" / "c").symlink_to("/etc/passwd")
    os.mkfifo(layer / "upper" / "d")
    first, after = entries(layer, "", "", 3)
    assert [(e.name, e.type, e.target) for e in first] == [
        ("a", "file", None),
        ("b", "directory", None),
        ("c", "symlink", "/etc/passwd"),
    ]
    assert first[0].stat.st_size == 3
    rest, end = entries(layer, "", after or "", 3)
    assert ([e.name for e in rest], end) == (["d"], None)


def test_a_folder_that_changes_into_a_link_all_the_time_never_leads_outside(layer: Path) -> None:
    upper, ended = layer / "upper", threading.Event()
    (upper / "x").mkdir()

    def swap() -> None:
        while not ended.is_set():
            with suppress(OSError):
                (upper / "x").rename(upper / "y")
                (upper / "x").symlink_to(layer / "outside")
                (upper / "x").unlink()
                (upper / "y").rename(upper / "x")

    racer = threading.Thread(target=swap)
    racer.start()
    try:
        for _ in range(300):
            with suppress(SandboxError):
                write(layer, "x/secret", b"changed")
            with suppress(SandboxError):
                assert read(layer, "x/secret") == b"changed"
    finally:
        ended.set()
        racer.join()
    assert (layer / "outside" / "secret").read_text() == "secret"
