"""The store's directories are closed to others, and files change as a whole."""

import stat
from pathlib import Path

import pytest

from atoll.images.layout import Places, write_atomic


def test_the_store_is_closed_to_other_users(tmp_path: Path) -> None:
    """Images hold set-user-id programs with the host's real ids on disk."""
    places = Places(tmp_path / "images")
    places.make()
    assert stat.S_IMODE(places.root.stat().st_mode) == 0o700


def test_a_reference_is_one_file_name(tmp_path: Path) -> None:
    places = Places(tmp_path)
    path = places.reference("localhost:5000/../a/b:1")
    assert path.parent == places.references


def test_scratch_is_gone_also_after_a_failure(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.make()

    def fail() -> None:
        with places.scratch() as scratch:
            (scratch / "x").touch()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert places.leftovers() == []


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
