"""The rules of .dockerignore, as Docker documents them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.images.ignore import Ignore


@pytest.mark.parametrize(
    ("lines", "ignored", "kept"),
    [
        ("*.md", ["a.md"], ["a.txt", "x/a.md", "amd"]),
        ("**/*.md", ["a.md", "x/y/a.md"], ["a.mdx"]),
        ("node_modules", ["node_modules", "node_modules/x/y"], ["x/node_modules", "node_modules2"]),
        ("/a/b/", ["a/b", "a/b/c"], ["a", "x/a/b"]),
        ("a/**", ["a/b", "a/b/c"], ["a", "b"]),
        ("a?c", ["abc"], ["a/c", "ac"]),
        ("[a-c].txt", ["b.txt"], ["d.txt"]),
        ("[^a].txt", ["b.txt"], ["a.txt"]),
        ("a\\*b", ["a*b"], ["axb"]),
        ("# comment\n\n  b  ", ["b"], ["# comment"]),
        ("*\n!src\n!README.md", ["x", "srcs"], ["src/a", "README.md"]),
        ("*.md\n!keep.md\nkeep.md", ["keep.md"], ["x"]),
        (".", [], ["a"]),
        ("a.b", ["a.b"], ["axb"]),
    ],
)
def test_patterns(lines: str, ignored: list[str], kept: list[str]) -> None:
    rules = Ignore(lines.splitlines())
    assert [path for path in ignored if not rules.ignores(path)] == []
    assert [path for path in kept if rules.ignores(path)] == []


def test_a_directory_is_read_when_something_in_it_may_come_back() -> None:
    assert Ignore(["a"]).prunes("a")
    assert not Ignore(["a", "!a/b"]).prunes("a")


@pytest.mark.parametrize("pattern", ["[^]", "[z-a]", "[", "[]", "\\", "a[^", "!"])
def test_malformed_patterns_match_nothing_they_should_not(pattern: str) -> None:
    assert not Ignore([pattern]).ignores("some/file")


@given(
    st.lists(st.text(alphabet="ab*?[]!\\/#.^-", max_size=8), max_size=4), st.text("ab/", max_size=9)
)
def test_no_pattern_breaks_the_reader(lines: list[str], path: str) -> None:
    Ignore(lines).ignores(path)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [("[*--]", "-", "."), ("[a-]", "-", "b"), ("[&&~~||]", "~", "x"), ("[\\\\-a]", "^", "b")],
)
def test_brackets_hold_characters_and_ranges_as_go_reads_them(
    pattern: str, matching: str, other: str
) -> None:
    ignore = Ignore([pattern])
    assert (ignore.ignores(matching), ignore.ignores(other)) == (True, False)
