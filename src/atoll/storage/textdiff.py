"""Hunks of a unified diff between two texts. Pure.

The shortest edit is looked for (Myers, 1986) up to a number of changed lines; beyond it the part
that differs is replaced as a whole. So time and memory have a bound whatever the texts are, and the
result is right in any case.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

CONTEXT = 3
"""Unchanged lines around a change."""
MAX_EDITS = 400
"""Changed lines that are told apart."""


class _Edit(NamedTuple):
    """Lines from `old` to `old_end` became those from `new` to `new_end`."""

    old: int
    old_end: int
    new: int
    new_end: int


def hunks(before: bytes, now: bytes) -> Iterator[bytes]:
    """Yield the lines of all hunks, each with its newline."""
    old, new = _lines(before), _lines(now)
    for group in _groups(_edits(old, new)):
        yield from _hunk(group, old, new)


def _lines(text: bytes) -> list[bytes]:
    """Split at newlines only: other ends of lines are part of a line to every patch program."""
    lines = text.split(b"\n")
    whole = [line + b"\n" for line in lines[:-1]]
    return [*whole, lines[-1]] if lines[-1] else whole


def _edits(old: Sequence[bytes], new: Sequence[bytes]) -> list[_Edit]:
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    a, b = old[start : len(old) - end], new[start : len(new) - end]
    found = _shortest(a, b)
    if found is None:
        found = [_Edit(0, len(a), 0, len(b))]
    return [_Edit(*(start + place for place in edit)) for edit in found]


def _shortest(a: Sequence[bytes], b: Sequence[bytes]) -> list[_Edit] | None:
    """Return the shortest edit, or None when it has more than `MAX_EDITS` lines."""
    reached = {1: 0}  # diagonal → how far in *a*
    trail: list[dict[int, int]] = []
    for edits in range(min(MAX_EDITS, len(a) + len(b)) + 1):
        trail.append(reached.copy())
        for diagonal in range(-edits, edits + 1, 2):
            x = _furthest(reached, diagonal, edits)
            y = x - diagonal
            while x < len(a) and y < len(b) and a[x] == b[y]:
                x, y = x + 1, y + 1
            reached[diagonal] = x
            if x >= len(a) and y >= len(b):
                return _merged(_steps(trail, x, y))
    return None


def _furthest(reached: dict[int, int], diagonal: int, edits: int) -> int:
    down = diagonal == -edits or (
        diagonal != edits and reached[diagonal - 1] < reached[diagonal + 1]
    )
    return reached[diagonal + 1] if down else reached[diagonal - 1] + 1


def _steps(trail: list[dict[int, int]], x: int, y: int) -> Iterator[_Edit]:
    """Yield single insertions and deletions, the last first."""
    for edits in range(len(trail) - 1, 0, -1):
        reached, diagonal = trail[edits], x - y
        down = diagonal == -edits or (
            diagonal != edits and reached[diagonal - 1] < reached[diagonal + 1]
        )
        before = diagonal + 1 if down else diagonal - 1
        x, y = reached[before], reached[before] - before
        yield _Edit(x, x, y, y + 1) if down else _Edit(x, x + 1, y, y)


def _merged(steps: Iterator[_Edit]) -> list[_Edit]:
    merged: list[_Edit] = []
    for edit in steps:
        after = merged[-1] if merged else None
        if after and edit.old_end == after.old and edit.new_end == after.new:
            merged[-1] = _Edit(edit.old, after.old_end, edit.new, after.new_end)
        else:
            merged.append(edit)
    return merged[::-1]


def _groups(edits: list[_Edit]) -> Iterator[list[_Edit]]:
    """Yield the edits of each hunk: those whose context meets are told together."""
    group: list[_Edit] = []
    for edit in edits:
        if group and edit.old - group[-1].old_end > 2 * CONTEXT:
            yield group
            group = []
        group.append(edit)
    if group and any(edit.old != edit.old_end or edit.new != edit.new_end for edit in group):
        yield group


def _hunk(group: list[_Edit], old: Sequence[bytes], new: Sequence[bytes]) -> Iterator[bytes]:
    first, last = group[0], group[-1]
    start = max(0, first.old - CONTEXT)
    end = min(len(old), last.old_end + CONTEXT)
    new_start = first.new - (first.old - start)
    new_end = last.new_end + (end - last.old_end)
    yield f"@@ -{_range(start, end)} +{_range(new_start, new_end)} @@\n".encode()
    at = start
    for edit in group:
        yield from _marked(b" ", old[at : edit.old])
        yield from _marked(b"-", old[edit.old : edit.old_end])
        yield from _marked(b"+", new[edit.new : edit.new_end])
        at = edit.old_end
    yield from _marked(b" ", old[at:end])


def _range(start: int, end: int) -> str:
    count = end - start
    return f"{start + 1 if count else start},{count}"


def _marked(mark: bytes, lines: Sequence[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield mark + line
        if not line.endswith(b"\n"):
            yield b"\n\\ No newline at end of file\n"
