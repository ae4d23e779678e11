"""``.dockerignore``: which paths of a build context are left out. Pure.

Docker's rules: patterns are relative to the context's root, ``*`` and ``?`` stay within a
component, ``**`` crosses them, ``!`` brings back, the last matching line decides, and a pattern
that matches a directory covers all below it.
"""

import re
from collections.abc import Iterable


class Ignore:
    """The compiled lines of a ``.dockerignore``."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules = [rule for line in lines if (rule := _rule(line))]
        self._brings_back = any(not ignores for _, ignores in self._rules)

    def ignores(self, path: str) -> bool:
        """Whether *path* (relative, ``/`` between components) is left out."""
        parents = [path]
        while (cut := parents[-1].rfind("/")) > 0:
            parents.append(parents[-1][:cut])
        verdict = False
        for pattern, ignores in self._rules:
            if any(pattern.fullmatch(part) for part in parents):
                verdict = ignores
        return verdict

    def prunes(self, directory: str) -> bool:
        """Whether nothing below *directory* can be wanted, so that it need not be read."""
        return not self._brings_back and self.ignores(directory)


def _rule(line: str) -> tuple[re.Pattern[str], bool] | None:
    text = line.strip()
    if not text or text.startswith("#"):
        return None
    ignores = not text.startswith("!")
    parts = [part for part in text.removeprefix("!").strip().split("/") if part not in {"", "."}]
    try:
        return (re.compile(_regex(parts)), ignores) if parts else None
    except re.error:  # a range written backwards, like [z-a]: it can match nothing
        return None


def _regex(parts: list[str]) -> str:
    pieces = []
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == "**":
            pieces.append(".*" if last else "(?:.*/)?")
        else:
            pieces.append(_component(part) + ("" if last else "/"))
    return "".join(pieces)


def _component(part: str) -> str:
    """Translate one component; brackets and backslashes as in Go's filepath.Match."""
    pieces = re.findall(r"\\.|\[(?:\^[^\]]+|[^\]^][^\]]*)\]|\*+|.", part, re.DOTALL)
    return "".join(_piece(piece) for piece in pieces)


def _piece(piece: str) -> str:
    if piece.startswith("*"):
        return ".*" if len(piece) > 1 else "[^/]*"
    if piece == "?":
        return "[^/]"
    if piece.startswith("[") and len(piece) > 1:
        return _set(piece[1:-1])
    return _literal(piece)


def _set(body: str) -> str:
    """Translate what stands in brackets: characters, and ranges of two with ``-`` between."""
    characters = re.findall(r"\\.|.", body.removeprefix("^"), re.DOTALL)
    members = []
    while characters:
        low = _literal(characters.pop(0))
        if characters[:1] == ["-"] and len(characters) > 1:
            low += "-" + _literal(characters[1])
            del characters[:2]
        members.append(low)
    return f"[{'^' * body.startswith('^')}{''.join(members)}]"


def _literal(character: str) -> str:
    """Return what matches a character, which may have a backslash before it."""
    return re.escape(character[-1])
