import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atoll import errors
from atoll.wire.files import MatchList
from integration.agent.files_calls import Call, call


def _find(path: Path, text: str, **fields: Any) -> list[tuple[str, int, int, str]]:
    reply = call("find_in_files", path=str(path), text=text, **fields).reply
    return [
        (os.path.relpath(m.path, path), m.line, m.column, m.text)
        for m in msgspec.convert(reply, MatchList).matches
    ]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "b").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text("needle")
    (tmp_path / "a.txt").write_text("first\r\nöö needle, needle\r\n\nneedle")
    (tmp_path / "b/c.py").write_text("x = 'needle'\n")
    (tmp_path / "binary").write_bytes(b"needle\0")
    (tmp_path / "link").symlink_to("a.txt")
    os.mkfifo(tmp_path / "fifo")
    return tmp_path


LINES = [
    ("a.txt", 2, 3, "öö needle, needle"),
    ("a.txt", 4, 0, "needle"),
    ("b/c.py", 1, 5, "x = 'needle'"),
]


@pytest.mark.parametrize("regex", [False, True])
def test_lines_are_found_in_order_with_columns_in_characters(tree: Path, regex: bool) -> None:
    assert _find(tree, "needle", regex=regex) == LINES


def test_text_is_not_an_expression_unless_asked(tree: Path) -> None:
    assert _find(tree, "n..dle") == []
    assert _find(tree, "n..dle$", regex=True) == LINES[1:2]
    assert _find(tree, "^", regex=True)


def test_a_glob_chooses_the_files(tree: Path) -> None:
    assert _find(tree, "needle", glob="*.py") == LINES[2:]
    assert _find(tree, "needle", glob="b/**") == LINES[2:]


def test_one_file_can_be_searched(tree: Path) -> None:
    assert [m[1:] for m in _find(tree / "a.txt", "needle")] == [m[1:] for m in LINES[:2]]


def test_a_cut_result_says_so(tree: Path) -> None:
    reply = call("find_in_files", path=str(tree), text="needle", limit=2).reply
    assert (len(reply["matches"]), reply["truncated"]) == (2, True)


def test_large_files_and_long_lines_are_searched(tmp_path: Path) -> None:
    content = b"x" * 3_000_000 + b"needle" + b"y" * 10 + b"\n" + b"z\n" * 100_000 + b"needle"
    (tmp_path / "large").write_bytes(content)
    first, second = _find(tmp_path, "needle")
    assert first[1:3] == (1, 3_000_000)
    assert len(first[3]) == 1000
    assert second[1:] == (100_002, 0, "needle")


def test_names_and_lines_that_are_no_text_are_answered(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/\xff", "wb") as file:
        file.write(b"\xfe needle")
    assert _find(tmp_path, "needle")[0][3] == "� needle"


@pytest.mark.parametrize("text", ["", "(", "a{99999999999}"])
def test_what_cannot_be_searched_for_is_typed(tmp_path: Path, text: str) -> None:
    with pytest.raises(errors.ValidationFailedError):
        _find(tmp_path, text, regex=True)


def test_an_expression_that_never_ends_is_ended_with_its_caller(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a" * 60 + "b")
    running = Call("find_in_files", path=str(tmp_path), text="(a+)+$", regex=True)
    time.sleep(0.1)
    started = time.monotonic()
    running.finish()
    assert time.monotonic() - started < 10
