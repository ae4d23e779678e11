"""Reads what was decided for a sandbox: the gateway's log and that of direct connections, as one.

Each file has its lines in the order in which decisions were done with, and so has the whole. A cursor
is where each file goes on; it stays good when a file was replaced by a newer one, as long as the
older one is kept. What is in the files is input: the gateway is not trusted.
"""

import heapq
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from atoll.errors import ValidationFailedError
from atoll.network.gateway import log
from atoll.network.gateway.protocol import Decision
from atoll.wire.egress import NetworkEvent

_CURSOR = re.compile(r"([a-z])(\d{1,20})-(\d{1,20})")
_decoder = msgspec.json.Decoder(Decision)


class Position(NamedTuple):
    """Where a log goes on: which file, by its inode, and how many bytes of it are read."""

    inode: int
    offset: int


class LogReader:
    """Reads the logs of one sandbox, from a cursor on. Blocking.

    Args:
        folders: where logs are, by the letter that stands for each in cursors.
        name: of the sandbox's logs.
        after: a cursor; empty: from the beginning.

    Raises:
        ValidationFailedError: *after* is no cursor.
    """

    def __init__(self, folders: Mapping[str, Path], name: str, after: str = "") -> None:
        self._folders = folders
        self._name = name
        self._positions = _positions(after)

    def read(self) -> Iterator[NetworkEvent]:
        """Yield what there is and was not read yet."""
        sources = [self._lines(letter, folder) for letter, folder in self._folders.items()]
        for _, letter, position, decision in heapq.merge(*sources, key=lambda line: line[0]):
            self._positions[letter] = position
            yield _event(decision, self._cursor())

    def _lines(self, letter: str, folder: Path) -> Iterator[tuple[float, str, Position, Decision]]:
        known = self._positions.get(letter)
        files = [opened for path in log.files(folder, self._name) if (opened := _content(path))]
        if known and any(inode == known.inode for inode, _ in files):
            files = files[[inode for inode, _ in files].index(known.inode) :]
        for inode, content in files:
            offset = known.offset if known and known.inode == inode else 0
            for line in content[offset:].splitlines(keepends=True):
                if not line.endswith(b"\n"):
                    break  # it is being written
                offset += len(line)
                with suppress(msgspec.MsgspecError):
                    decision = _decoder.decode(line)
                    ended = decision.time + decision.ms / 1_000
                    yield ended, letter, Position(inode, offset), decision

    def _cursor(self) -> str:
        return ".".join(f"{k}{p.inode}-{p.offset}" for k, p in sorted(self._positions.items()))


def _positions(cursor: str) -> dict[str, Position]:
    found = [_CURSOR.fullmatch(part) for part in cursor.split(".")] if cursor else []
    if not all(found):
        raise ValidationFailedError(
            "this is no cursor of a network log",
            context={"field": "after", "value": cursor[:200]},
            suggestion="give the `cursor` of an event, or nothing",
        )
    return {match[1]: Position(int(match[2]), int(match[3])) for match in found if match}


def _content(path: Path) -> tuple[int, bytes] | None:
    """Return a file's inode and content; it lies in a folder that the gateway writes to."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, flags)
    except OSError:
        return None
    with open(fd, "rb") as file:  # noqa: PTH123 - a descriptor
        found = os.fstat(fd)
        return (found.st_ino, file.read(log.MAX_BYTES)) if stat.S_ISREG(found.st_mode) else None


def _event(decision: Decision, cursor: str) -> NetworkEvent:
    return NetworkEvent(
        cursor=cursor,
        time=decision.time,
        protocol=decision.protocol,
        verdict=decision.verdict,
        rule=decision.rule,
        host=decision.host,
        address=decision.address,
        port=decision.port,
        method=decision.method,
        path=decision.path,
        status=decision.status,
        bytes_up=decision.bytes_up,
        bytes_down=decision.bytes_down,
        duration_ms=decision.ms,
        dropped=decision.dropped,
    )
