"""Globs over paths.

``*`` and ``?`` stop at a slash, ``**`` does not, ``[a-z]`` and ``[!a-z]`` are sets, ``{a,b}``
are alternatives. A pattern without a slash is compared with the last name of a path, one with a
slash with the whole relative path; a slash at its start only says so. Matching is done on the text
form of names, so that ``?`` is one character and not one byte.
"""

import re
from collections.abc import Callable, Iterable

from atoll import errors
from atoll.agent.files.pathnames import to_text

Matcher = Callable[[bytes], bool]


def matcher(patterns: Iterable[str]) -> Matcher:
    """Return a function that tells whether a relative path matches one of *patterns*."""
    names: list[str] = []
    paths: list[str] = []
    for text in patterns:
        whole = "/" in text.rstrip("/")
        (paths if whole else names).append(translate(text.strip("/").removeprefix("./")))
    match_name, match_path = _compile(names), _compile(paths)

    def match(relative: bytes) -> bool:
        path = to_text(relative)
        return match_name(path.rpartition("/")[2]) or match_path(path)

    return match


def _compile(expressions: list[str]) -> Callable[[str], bool]:
    if not expressions:
        return lambda _path: False
    try:
        match = re.compile("|".join(expressions), re.DOTALL).fullmatch
    except (re.error, OverflowError) as error:
        raise errors.ValidationFailedError(f"not a pattern: {error}") from error
    return lambda path: match(path) is not None


def translate(pattern: str, *, braces: bool = True) -> str:
    """Return the regular expression of one glob; without *braces*, ``{`` is only itself."""
    parts: list[str] = []
    at, depth = 0, 0
    while at < len(pattern):
        char = pattern[at : at + 1]
        at += 1
        if char == "*":
            part, at = _stars(pattern, at)
        elif char == "[":
            part, at = _set(pattern, at)
        elif char == "{" and braces and "}" in pattern[at:]:
            part, depth = "(?:", depth + 1
        elif char == "}" and depth:
            part, depth = ")", depth - 1
        elif char == "," and depth:
            part = "|"
        elif char == "\\" and at < len(pattern):
            part, at = re.escape(pattern[at : at + 1]), at + 1
        else:
            part = "[^/]" if char == "?" else re.escape(char)
        parts.append(part)
    return "(?:" + "".join(parts) + ")" * depth + ")"


def _stars(pattern: str, at: int) -> tuple[str, int]:
    end = at
    while pattern[end : end + 1] == "*":
        end += 1
    if end == at:
        return "[^/]*", at
    at_start = at == 1 or pattern[at - 2 : at - 1] == "/"
    if at_start and pattern[end : end + 1] == "/":
        return "(?:.*/)?", end + 1
    return ".*", end


def _set(pattern: str, at: int) -> tuple[str, int]:
    negated = pattern[at : at + 1] in {"!", "^"}
    first = at + negated
    end = pattern.find("]", first + 1)
    if end < 0:
        return r"\[", at
    inside = pattern[first:end].replace("\\", r"\\").replace("[", r"\[")
    inside = inside.replace("]", r"\]").replace("^", r"\^").replace("&&", r"&\&")
    inside = inside.replace("||", r"|\|").replace("~~", r"~\~").replace("--", r"-\-")
    return ("(?!/)[^" if negated else "(?!/)[") + inside + "]", end + 1
