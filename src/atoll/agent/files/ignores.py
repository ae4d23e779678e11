"""gitignore(5): which entries of a tree its own ignore files name.

The file of a directory governs what is below it; the innermost file with a matching line decides,
and in it the last such line. An ignored directory is not looked into, so nothing in it can be
taken back.
"""

import os
import re
from typing import Final, NamedTuple

from atoll.agent.files import globs
from atoll.agent.files.pathnames import to_text

MAX_FILE: Final = 1 << 20
"""Bytes read of one ignore file."""


class Rule(NamedTuple):
    """One line. `path` is compared with the path below its directory, or with the name."""

    expression: re.Pattern[str]
    ignores: bool
    only_directories: bool
    whole_path: bool


def parse(text: str) -> list[Rule]:
    """Return the rules of an ignore file, the last line first; senseless lines are skipped."""
    rules = [rule for line in text.splitlines() if (rule := _parse_line(line))]
    return rules[::-1]


def _parse_line(line: str) -> Rule | None:
    pattern = re.sub(r"(?<!\\) +$", "", line)
    if not pattern or pattern.startswith("#"):
        return None
    negated = pattern.startswith("!")
    pattern = pattern[negated:]
    body = pattern.rstrip("/")
    try:
        expression = re.compile(globs.translate(body.lstrip("/"), braces=False), re.DOTALL)
    except (re.error, OverflowError):
        return None
    return Rule(expression, not negated, body != pattern, "/" in body)


def decide(rules: list[Rule], path: str, *, is_directory: bool) -> bool | None:
    """Return whether *path*, relative to the rules' directory, is ignored; None: no word of it."""
    name = path.rpartition("/")[2]
    for rule in rules:
        if (is_directory or not rule.only_directories) and rule.expression.fullmatch(
            path if rule.whole_path else name
        ):
            return rule.ignores
    return None


class Ignored:
    """The rules of all directories of one tree, read as they are needed."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._rules: dict[bytes, list[Rule]] = {}

    def __call__(self, relative: bytes, *, is_directory: bool) -> bool:
        """Tell whether the entry is ignored; `.git` always is."""
        if relative.rpartition(b"/")[2] == b".git":
            return True
        directory = relative
        while directory:
            directory = directory.rpartition(b"/")[0]
            below = relative[len(directory) + 1 if directory else 0 :]
            verdict = decide(self._of(directory), to_text(below), is_directory=is_directory)
            if verdict is not None:
                return verdict
        return False

    def _of(self, directory: bytes) -> list[Rule]:
        if directory not in self._rules:
            self._rules[directory] = parse(self._read(os.path.join(directory, b".gitignore")))
        return self._rules[directory]

    def _read(self, path: bytes) -> str:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(path, flags, dir_fd=self._top)
        except OSError:
            return ""
        try:
            return to_text(os.read(fd, MAX_FILE))
        except OSError:
            return ""
        finally:
            os.close(fd)
