import pytest

from atoll.agent.files.ignores import decide, parse


@pytest.mark.parametrize(
    ("lines", "path", "is_directory", "verdict"),
    [
        ("*.log", "a/b.log", False, True),
        ("*.log\n!keep.log", "keep.log", False, False),
        ("!keep.log\n*.log", "keep.log", False, True),
        ("build/", "build", True, True),
        ("build/", "build", False, None),
        ("/only", "only", False, True),
        ("/only", "a/only", False, None),
        ("a/b", "a/b", False, True),
        ("a/b", "x/a/b", False, None),
        ("**/b", "x/a/b", False, True),
        ("# comment\n\n", "# comment", False, None),
        (r"\#file", "#file", False, True),
        (r"\!file", "!file", False, True),
        ("name ", "name", False, True),
        ("{a,b}", "a", False, None),
        ("{a,b}", "{a,b}", False, True),
        ("[z-a]", "z", False, None),
    ],
)
def test_lines_mean_what_git_says(
    lines: str, path: str, is_directory: bool, verdict: bool | None
) -> None:
    assert decide(parse(lines), path, is_directory=is_directory) is verdict
