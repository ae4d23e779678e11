import os
import stat
from pathlib import Path

import pytest

from atoll import errors
from integration.agent.files_calls import call


def test_every_occurrence_is_replaced_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one two one")
    (tmp_path / "a").chmod(0o751)
    (tmp_path / "b").write_text("none")
    before = (tmp_path / "b").stat()
    paths = [str(tmp_path / "a"), "b"]
    reply = call("replace_in_files", paths=paths, old="one", new="1ö", cwd=str(tmp_path)).reply
    assert reply == {"replaced": {str(tmp_path / "a"): 2, str(tmp_path / "b"): 1}}
    assert (tmp_path / "a").read_text() == "1ö two 1ö"
    assert (tmp_path / "b").read_text() == "n1ö"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o751
    assert before.st_size == 4


def test_a_file_without_the_text_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("nothing here")
    before = (tmp_path / "a").stat()
    assert call("replace_in_files", paths=[str(tmp_path / "a")], old="x y", new="").reply == {
        "replaced": {}
    }
    assert (tmp_path / "a").stat().st_ino == before.st_ino
    assert (tmp_path / "a").stat().st_mtime_ns == before.st_mtime_ns


def test_a_wrong_path_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    for wrong in ("nope", "."):
        with pytest.raises((errors.FileNotFoundError, errors.IsDirectoryError)):
            call("replace_in_files", paths=["a", wrong], old="one", new="x", cwd=str(tmp_path))
    assert (tmp_path / "a").read_text() == "one"
    assert os.listdir(tmp_path) == ["a"]


def test_bytes_around_the_text_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xff\0one\r\n")
    call("replace_in_files", paths=[str(tmp_path / "a")], old="one", new="two")
    assert (tmp_path / "a").read_bytes() == b"\xff\0two\r\n"


def test_nothing_cannot_be_replaced(tmp_path: Path) -> None:
    with pytest.raises(errors.ValidationFailedError):
        call("replace_in_files", paths=[], old="", new="x")
