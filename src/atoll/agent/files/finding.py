"""Finding text in files.

One process reads the files in order and searches their bytes. In a large tree the image's ripgrep,
where there is one, chooses which files are worth it: see `ripgrep`. The answer does not depend on it.

Text is compared as bytes. Regular expressions are Python's and see decoded text, line by line
with ``^`` and ``$``, of files that hold what a match cannot do without: see `needles`. A timer
looks after the caller meanwhile, since one search of a badly chosen expression may last for ever.
"""

import bisect
import os
import re
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final, NamedTuple

from atoll import errors
from atoll.agent.files import globs, pathnames, ripgrep, walking
from atoll.agent.files.needles import Needles, of_expression
from atoll.agent.files.requests import Fields
from atoll.agent.files.rooms import Room
from atoll.agent.files.searching import MAX_RESULTS
from atoll.agent.files.streams import Stream

MAX_REGEX_FILE: Final = 16 << 20
"""Bytes of the largest file a regular expression is tried on: decoded, it may take four
times as many of the agent's small memory."""

MAX_LINE: Final = 1000
"""Characters of a matching line that are returned."""

LARGE_TREE: Final = 2_000
"""Entries after which ripgrep is asked: they take us the 20 ms that it takes to start it."""

_SMALL: Final = 1 << 16
_CALLER_CHECK: Final = 0.25
"""Seconds of computing between looks at the caller."""


class Hit(NamedTuple):
    """A line with a match."""

    line: int
    column: int
    text: str


Searcher = Callable[[bytes], Iterator[Hit]]


def find_in_files(stream: Stream, fields: Fields) -> dict[str, Any]:
    """Return the lines below ``path`` that hold ``text``, in order of path and line.

    ``path`` may be a file. ``glob`` says which files count.
    """
    path, limit = fields.path(), fields.integer("limit", 10_000, low=1, high=MAX_RESULTS)
    regex = fields.flag("regex")
    search, needles = _searcher(fields.text("text"), regex=regex)
    glob = fields.optional_text("glob")
    wanted = globs.matcher([glob]) if glob else None
    found = _Found(limit)
    with pathnames.blame(path), _looking_after(stream) if regex else nullcontext():
        if not os.path.isdir(path):
            found.add(path, search(_read_text(None, path, regex=regex)))
            return found.answer()
        with walking.opened(path) as top:
            for item in _items(stream, top, needles):
                stream.check()
                if item.is_directory or (wanted and not wanted(item.relative)):
                    continue
                content = _read_quietly(item, regex=regex)
                if content and not found.add(pathnames.join(path, item.relative), search(content)):
                    break
    return found.answer()


def _items(stream: Stream, top: int, needles: Needles | None) -> walking.Items:
    """Yield the entries of the tree, from some number on only those that may match, if one can tell."""
    for number, item in enumerate(walking.walk(top, accept=_is_no_repository), start=1):
        yield item
        if number == LARGE_TREE and needles is not None:
            names = ripgrep.files_with(stream, top, needles)
            if names is not None:
                seen = item.relative.split(b"/")
                for name in names[bisect.bisect(names, seen) :]:
                    path = b"/".join(name)
                    yield walking.Item(top, path, path, is_directory=False)
                return


class _Found:
    """The matches so far, up to a number and a size."""

    def __init__(self, limit: int) -> None:
        self._room = Room(limit, overhead=100)
        self._matches: list[dict[str, Any]] = []
        self._truncated = False

    def add(self, path: bytes, hits: Iterator[Hit]) -> bool:
        """Add the hits of one file; return False when there was no room for all."""
        name = ""
        for hit in hits:
            if self._room.is_full:
                self._truncated = True
                return False
            name = name or pathnames.to_text(path)
            self._matches.append({"path": name, **hit._asdict()})
            self._room.take(name, hit.text)
        return True

    def answer(self) -> dict[str, Any]:
        return {"matches": self._matches, "truncated": self._truncated}


def _is_no_repository(name: bytes, _relative: bytes, is_directory: bool) -> bool:
    return not (is_directory and name == b".git")


def _read_quietly(item: walking.Item, *, regex: bool) -> bytes:
    """Return the text of a file of the walk; one that is gone or not the user's has none."""
    try:
        return _read_text(item.directory, item.name, regex=regex)
    except (OSError, errors.FileTooLargeError):
        return b""


def _read_text(directory: int | None, name: bytes, *, regex: bool) -> bytes:
    """Return the content of a regular text file, else nothing.

    Small files take one read; of larger ones the first part tells whether they are worth it.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    file = os.open(name, flags if directory is None else flags | os.O_NOFOLLOW, dir_fd=directory)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            return b""
        content = os.read(file, _SMALL)
        if b"\0" in content or len(content) < _SMALL:
            return b"" if b"\0" in content else content
        return _read_large(file, found.st_size, content, regex=regex)
    finally:
        os.close(file)


def _read_large(file: int, size: int, start: bytes, *, regex: bool) -> bytes:
    if regex and size > MAX_REGEX_FILE:
        raise errors.FileTooLargeError(
            "the file is too large for a regular expression", context={"limit": MAX_REGEX_FILE}
        )
    if size <= len(start):
        return start
    import mmap

    content: Any = mmap.mmap(file, 0, prot=mmap.PROT_READ)  # has the methods of bytes used here
    text: bytes = b"" if content.find(b"\0") >= 0 else content
    return text


def _searcher(text: str, *, regex: bool) -> tuple[Searcher, Needles | None]:
    """Return what finds *text* in a file, and what a file must hold to be worth it."""
    if not text:
        raise errors.ValidationFailedError("the text to find is empty", context={"field": "text"})
    if not regex:
        needle = text.encode("utf-8", "surrogatepass")
        return (lambda content: _literal_hits(content, needle)), _plain(needle)
    try:
        expression = re.compile(text, re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        raise errors.ValidationFailedError(
            f"not a regular expression: {error}", context={"field": "text"}
        ) from error
    needles = of_expression(expression)
    return (lambda content: _regex_hits(content, expression, needles)), needles


def _plain(needle: bytes) -> Needles | None:
    """Return a text as a needle, if it can be one: of a single line, without NUL."""
    return None if any(char in needle for char in b"\r\n\0") else Needles((needle,))


def _literal_hits(content: bytes, needle: bytes) -> Iterator[Hit]:
    line, counted = 1, 0
    at = content.find(needle)
    while at >= 0:
        start = content.rfind(b"\n", 0, at) + 1
        line += content[counted:start].count(b"\n")
        counted = start
        end = content.find(b"\n", at + len(needle) - 1)
        end = len(content) if end < 0 else end
        column = len(content[start:at].decode("utf-8", "replace"))
        shown = content[start : min(end, start + 4 * MAX_LINE)].decode("utf-8", "replace")
        yield Hit(line, column, shown[:MAX_LINE].rstrip("\r\n"))
        at = content.find(needle, end)


def _regex_hits(
    content: bytes, expression: re.Pattern[str], needles: Needles | None
) -> Iterator[Hit]:
    if needles is not None and not needles.are_in(content):
        return
    text = bytes(content).decode("utf-8", "replace")
    line, counted, at = 1, 0, 0
    while at <= len(text) and (match := expression.search(text, at)):
        start = text.rfind("\n", 0, match.start()) + 1
        line += text.count("\n", counted, start)
        counted = start
        end = text.find("\n", match.start())
        end = len(text) if end < 0 else end
        shown = text[start : min(end, start + MAX_LINE)].rstrip("\r")
        if start < len(text):
            yield Hit(line, match.start() - start, shown)
        at = end + 1


@contextmanager
def _looking_after(stream: Stream) -> Iterator[None]:
    """Interrupt the block when the caller goes; Python's matcher runs signal handlers."""
    before = signal.signal(signal.SIGVTALRM, lambda *_: stream.check_now())
    signal.setitimer(signal.ITIMER_VIRTUAL, _CALLER_CHECK, _CALLER_CHECK)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
