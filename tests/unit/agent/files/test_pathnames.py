import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll import errors
from atoll.agent.files.pathnames import join, to_bytes, to_text


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_every_name_has_one_text_form_that_leads_back(name: bytes) -> None:
    text = to_text(name)
    text.encode()  # valid Unicode: JSON and URLs take it
    assert to_bytes(text) == name if b"\0" not in name else "\0" in text


@settings(deadline=None)
@given(st.binary(max_size=20), st.binary(max_size=20))
def test_two_names_never_look_the_same(one: bytes, other: bytes) -> None:
    assert (to_text(one) == to_text(other)) == (one == other)


def test_ordinary_names_are_themselves() -> None:
    assert to_text("naïve 名前.txt".encode()) == "naïve 名前.txt"
    assert to_text(b"bad\xff") == "bad\uefff"
    assert to_bytes("bad\uefff") == b"bad\xff"


@pytest.mark.parametrize("text", ["a\0b", "lone \ud800"])
def test_text_that_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(errors.ValidationFailedError):
        to_bytes(text)


@pytest.mark.parametrize(
    ("path", "whole"),
    [
        (b"a", b"/work/a"),
        (b"./a//b/", b"/work/a/b"),
        (b"../a", b"/work/../a"),
        (b"/x/./y", b"/x/y"),
        (b".", b"/work"),
        (b"/", b"/"),
    ],
)
def test_relative_paths_start_at_the_directory(path: bytes, whole: bytes) -> None:
    assert join(b"/work", path) == whole
