"""The network log of a sandbox: one JSON line a decision, in a file that the engine reads.

The gateway writes it and the engine, which is root, reads it: so the engine follows no link and
takes nothing from it but what is a `Decision`. Two files of `MAX_BYTES`, the older one goes when the
newer is full. A sandbox that makes more lines than `RATE` a second loses some, and the next line
says how many.
"""

import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from atoll.network.gateway.bucket import Bucket
from atoll.network.gateway.protocol import Decision

MAX_BYTES = 4 << 20
"""Bytes of one of the two files of a sandbox: together about 40,000 lines."""

MAX_LINE = 4_096
"""Bytes of one line: longer ones lose their path and rule."""

RATE, BURST = 100.0, 500
"""Lines a second that are written on average, and at once."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Decision)


def check_name(name: str) -> str:
    """Return *name*; raise `ValueError` where it is none of a log."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:50]!r} is no name of a log")
    return name


def files(folder: Path, name: str) -> tuple[Path, Path]:
    """Return the older and the newer file of a log."""
    return folder / f"{check_name(name)}.1.jsonl", folder / f"{name}.jsonl"


class Log:
    """Writes one log.

    Args:
        folder: where all logs are.
        name: of this one.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._older, self._newer = files(folder, name)
        self._bucket = Bucket(RATE, BURST)
        self._dropped = 0
        self._fd = -1
        self._size = 0

    def write(self, decision: Decision) -> None:
        """Add a line. A disk that is full loses it; nothing else does."""
        if not self._bucket.take(time.monotonic()):
            self._dropped += 1
            return
        if self._dropped:
            decision = msgspec.structs.replace(decision, dropped=self._dropped)
        try:
            self._append(_line(decision))
        except OSError:
            self._dropped += 1
        else:
            self._dropped = 0

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, line: bytes) -> None:
        if self._fd >= 0 and self._size + len(line) > MAX_BYTES:
            self.close()
            self._newer.replace(self._older)
        if self._fd < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(self._newer, flags, 0o600)
            self._size = os.fstat(self._fd).st_size
        self._size += os.write(self._fd, line)


def _line(decision: Decision) -> bytes:
    line = _encoder.encode(decision)
    if len(line) > MAX_LINE:
        shorter = {"path": decision.path[:200], "rule": decision.rule[:200]}
        line = _encoder.encode(
            msgspec.structs.replace(decision, **shorter, address=decision.address[:200])
        )
    return line + b"\n"


def read(folder: Path, name: str) -> Iterator[Decision]:
    """Yield the decisions of a log, the oldest first. What is no line of ours is left out."""
    for path in files(folder, name):
        for line in _content(path).splitlines():
            try:
                yield _decoder.decode(line)
            except msgspec.MsgspecError:
                continue


def remove(folder: Path, name: str) -> None:
    """Remove a log; nothing happens when there is none."""
    for path in files(folder, name):
        path.unlink(missing_ok=True)


def _content(path: Path) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with open(fd, "rb") as file:  # noqa: PTH123 - a descriptor
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return b""
        return file.read(MAX_BYTES)
