"""Texts of which one must be in a file for an expression to match there.

Most files hold none of them, and to look for plain bytes is many times faster than to decode a
file and to try an expression on it. The expression itself decides about the rest, so all that is
asked of the texts is that no match can do without: what is not understood asks for nothing.

The expression is read by the parser that compiles it, so that both mean the same.
"""

import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any, Final, NamedTuple

MAX_NEEDLES: Final = 20
"""More alternatives than this are no faster than the expression."""

_FOLDED_BY_OTHERS: Final = frozenset("iks")
"""ASCII letters that ignoring case matches with letters outside ASCII (dotless i, long s, the
kelvin sign)."""

_Choice = tuple[str, ...]


class Needles(NamedTuple):
    """Alternatives, as UTF-8; with *any_case* in lower case, found in any."""

    texts: tuple[bytes, ...]
    any_case: bool = False

    def are_in(self, content: bytes) -> bool:
        """Tell whether one of them is in *content*."""
        whole = bytes(content).lower() if self.any_case else content
        return any(whole.find(text) >= 0 for text in self.texts)


def of_expression(expression: re.Pattern[str]) -> Needles | None:
    """Return what every match of *expression* holds one of; None: nothing is known."""
    parser: Any = import_module("re._parser")  # private, and known to no checker of types
    any_case = bool(expression.flags & re.IGNORECASE)
    tree = parser.parse(expression.pattern, expression.flags)
    found = _required(tree, any_case=any_case)
    if not found or len(found) > MAX_NEEDLES:
        return None
    return Needles(tuple(text.encode() for text in found), any_case)


def _required(items: Iterable[Any], *, any_case: bool) -> _Choice:
    """Return the best choice of texts that a sequence needs; empty when it needs none."""
    return max(_choices(items, any_case=any_case), key=_worth, default=())


def _worth(choice: _Choice) -> tuple[int, int]:
    return min(map(len, choice), default=0), -len(choice)


def _choices(items: Iterable[Any], *, any_case: bool) -> Iterator[_Choice]:
    run = ""
    for kind, argument in items:
        if str(kind) == "LITERAL" and _is_plain(char := chr(argument), any_case=any_case):
            run += char.lower() if any_case else char
            continue
        if run:
            yield (run,)
        run = ""
        yield _inside(str(kind), argument, any_case=any_case)
    if run:
        yield (run,)


def _is_plain(char: str, *, any_case: bool) -> bool:
    """Tell whether a character of a match is these bytes in the file, and in one line of it."""
    if any_case:
        return char.isascii() and char not in "\r\n\0" and char.lower() not in _FOLDED_BY_OTHERS
    return char not in "\r\n\0\ufffd" and not "\ud800" <= char <= "\udfff"


def _inside(kind: str, argument: Any, *, any_case: bool) -> _Choice:
    """Return what one item that is no character needs."""
    if kind == "SUBPATTERN":
        _, added, removed, items = argument
        same = not (added | removed) & re.IGNORECASE
        return _required(items, any_case=any_case) if same else ()
    if kind == "BRANCH":
        branches = [_required(items, any_case=any_case) for items in argument[1]]
        return tuple(text for branch in branches for text in branch) if all(branches) else ()
    if kind in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"} and argument[0] > 0:
        return _required(argument[2], any_case=any_case)
    return _required(argument, any_case=any_case) if kind == "ATOMIC_GROUP" else ()
