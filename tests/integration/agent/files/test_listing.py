import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atoll import errors
from atoll.wire.files import FileList
from integration.agent.files_calls import call


def _list(path: object, **fields: Any) -> FileList:
    return msgspec.convert(call("list_files", path=str(path), **fields).reply, FileList)


def _pages(path: object, **fields: Any) -> list[str]:
    names: list[str] = []
    cursor = None
    while True:
        page = _list(path, cursor=cursor, **fields)
        assert page.count == len(page.files)
        assert page.success
        assert page.timestamp
        names += [file.relative_path for file in page.files]
        cursor = page.cursor
        if cursor is None:
            return names


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b/x", "b/y/z", "a", ".hidden/inside", "b-", "c/.secret/deep"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def test_a_directory_is_listed_sorted_without_hidden_names(tree: Path) -> None:
    assert _pages(tree) == ["a", "b", "b-", "c"]


def test_recursive_lists_directories_before_what_is_in_them(tree: Path) -> None:
    assert _pages(tree, recursive=True) == ["a", "b", "b/x", "b/y", "b/y/z", "b-", "c"]


def test_hidden_names_are_listed_on_request_and_below_a_hidden_directory(tree: Path) -> None:
    assert ".hidden/inside" in _pages(tree, recursive=True, include_hidden=True)
    assert "c/.secret/deep" in _pages(tree, recursive=True, include_hidden=True)
    assert _pages(tree / ".hidden") == ["inside"]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_pages_of_any_size_make_the_same_list(tree: Path, limit: int) -> None:
    options = {"recursive": True, "include_hidden": True}
    assert _pages(tree, limit=limit, **options) == _pages(tree, **options)


def test_a_page_goes_on_behind_an_entry_that_is_gone(tree: Path) -> None:
    first = _list(tree, limit=2)
    assert first.cursor == "b"
    (tree / "b/x").unlink()
    (tree / "b/y/z").unlink()
    (tree / "b/y").rmdir()
    (tree / "b").rmdir()
    assert [file.name for file in _list(tree, cursor=first.cursor).files] == ["b-", "c"]


def test_loops_of_links_are_cut(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(".")
    (tmp_path / "self").symlink_to("self")
    files = _list(tmp_path, recursive=True).files
    assert [(f.name, f.type, f.target) for f in files] == [
        ("loop", "symlink", "."),
        ("self", "symlink", "self"),
    ]


def test_a_link_to_a_directory_can_be_listed(tree: Path) -> None:
    (tree / "link").symlink_to("b")
    assert _pages(tree / "link") == ["x", "y"]


def test_names_that_are_no_text_come_back_usable(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/bad\xff\xfename", "wb") as file:
        file.write(b"content")
    [found] = _list(tmp_path).files
    assert call("read_file", path=found.absolute_path).data == b"content"


def test_twenty_thousand_entries_page_completely(tmp_path: Path) -> None:
    for number in range(20_000):
        os.mknod(tmp_path / f"{number:05}")
    assert _pages(tmp_path, limit=7_000) == [f"{number:05}" for number in range(20_000)]


def test_a_page_ends_before_the_answer_is_over_the_largest_frame(tmp_path: Path) -> None:
    deep = tmp_path / ("\1" * 250) / ("\2" * 250) / ("\3" * 250)
    deep.mkdir(parents=True)
    for number in range(1_000):
        os.mknod(deep / ("\4" * 100 + str(number)))
    assert len(_pages(deep, limit=10_000)) == 1_000
    assert _list(deep, limit=10_000).cursor is not None


def test_missing_directories_and_files_are_typed(tree: Path) -> None:
    with pytest.raises(errors.FileNotFoundError):
        _list(tree / "nope")
    with pytest.raises(errors.NotDirectoryError):
        _list(tree / "a")


@pytest.mark.parametrize("limit", [0, -1, 10_001, "5"])
def test_limits_are_checked(tree: Path, limit: object) -> None:
    with pytest.raises(errors.ValidationFailedError):
        _list(tree, limit=limit)


@pytest.mark.skipif(os.getuid() != 0, reason="changes an owner")
def test_an_owner_without_a_name_is_a_number(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    os.chown(tmp_path / "f", 54_321, 54_322)
    [found] = _list(tmp_path).files
    assert (found.owner, found.group) == ("54321", "54322")
