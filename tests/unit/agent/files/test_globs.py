import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.agent.files.globs import matcher, translate


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*.py", b"a/b/c.py"),
        ("c?.txt", "a/cé.txt".encode()),
        ("src/**/*.py", b"src/a.py"),
        ("src/**/*.py", b"src/x/y/a.py"),
        ("**/a", b"a"),
        ("a/**", b"a/b/c"),
        ("/top", b"top"),
        ("[a-c]x", b"bx"),
        ("[!a-c]x", b"dx"),
        ("*.{js,ts}", b"m.ts"),
        ("we[ird", b"we[ird"),
        (r"\*", b"*"),
        ("node_modules", b"deep/node_modules"),
    ],
)
def test_pattern_matches(pattern: str, path: bytes) -> None:
    assert matcher([pattern])(path)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("src/*.py", b"src/x/a.py"),
        ("*.py", b"a.pyc"),
        ("a?b", b"a/b"),
        ("[!a]x", b"/x"),
        ("top/x", b"a/top/x"),
        ("a.c", b"abc"),
        ("", b"a"),
    ],
)
def test_pattern_does_not_match(pattern: str, path: bytes) -> None:
    assert not matcher([pattern])(path)


@settings(deadline=None)
@given(st.text(max_size=20))
def test_every_text_is_a_pattern_that_fails_cleanly(pattern: str) -> None:
    """Nothing a caller writes may end in an exception of the expression engine."""
    try:
        re.compile(translate(pattern))
    except re.error as error:
        assert "range" in str(error)  # [z-a]: reported as VALIDATION_FAILED by `matcher`
