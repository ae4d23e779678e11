import errno
import os
from pathlib import Path

import pytest

from atoll.engine.egress.seal import Seal


def test_what_is_sealed_is_opened_with_the_same_key_and_shows_nothing(tmp_path: Path) -> None:
    sealed = Seal(tmp_path / "key").close("the-value")
    assert b"the-value" not in sealed
    assert Seal(tmp_path / "key").open(sealed) == "the-value"
    assert [file.name for file in tmp_path.iterdir()] == ["key"]
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("left", [None, b"", b"half of a k", b"\xff" * 44])
def test_a_key_that_is_gone_opens_nothing_and_is_made_again(
    tmp_path: Path, left: bytes | None
) -> None:
    seal = Seal(tmp_path / "key")
    sealed = seal.close("the-value")
    seal.file.unlink()
    if left is not None:
        seal.file.write_bytes(left)
    assert seal.open(sealed) is None
    assert seal.open(seal.close("another")) == "another"
    assert seal.open(sealed) is None


def test_a_key_that_cannot_be_made_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        Seal(tmp_path / "key").close("x")
    assert list(tmp_path.iterdir()) == []
