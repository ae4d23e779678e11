"""The record of every mutating call: who, what, when, with which answer. Two files, no more.

A line is appended when the answer is known, before the caller has it, so a killed engine loses
only calls that nobody was answered. Lines go to the page cache; a loss of power may take the last
seconds. A full file becomes the old one, and the one before that is gone: what is kept is bounded
by bytes, and a store full of records never stops the engine. Reading goes backwards from the end.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

from atoll.wire.keys import AuditPage, AuditQuery, AuditRecord

log = structlog.get_logger(__name__)

_BLOCK = 1 << 16  # bytes read at once from the end


class AuditLog:
    """Appends and reads records.

    Args:
        directory: made when missing; readable by the engine's user only.
        limit: bytes of both files together.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self._file = directory / "audit.jsonl"
        self._old = directory / "audit.1.jsonl"
        self._limit = limit // 2
        self._fd: int | None = None
        self._size = 0
        self._number = 0
        self._failing = False

    def open(self) -> None:
        """Open the file and find the last number; a line cut short by a crash is left behind."""
        self._file.parent.mkdir(mode=0o700, exist_ok=True)
        last = next(self._backwards(), None)
        self._number = last.number if last else 0
        self._append_to()
        if self._size and _last_byte(self._file) != b"\n":
            self._write(b"\n")

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def add(self, record: AuditRecord) -> None:
        """Append *record* under the next number. A disk that is full is told in the log, once."""
        self._number += 1
        line = msgspec.json.encode(msgspec.structs.replace(record, number=self._number)) + b"\n"
        try:
            if self._size + len(line) > self._limit:
                self._turn()
            self._write(line)
        except OSError as error:
            if not self._failing:
                log.error("audit records are lost", reason=str(error))
            self._failing = True
        else:
            self._failing = False

    def _append_to(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(self._file, flags, 0o600)
        self._size = os.fstat(self._fd).st_size

    def _turn(self) -> None:
        self.close()
        with suppress(FileNotFoundError):
            self._file.replace(self._old)
        self._append_to()

    def _write(self, line: bytes) -> None:
        if self._fd is None:
            self._append_to()
        written = os.write(self._fd or 0, line)
        self._size += written
        if written < len(line):
            raise OSError(f"{written} of {len(line)} bytes were written")

    async def read(self, wanted: AuditQuery) -> AuditPage:
        """Return a page of records, newest first."""
        return await asyncio.to_thread(self._page, wanted)

    def _page(self, wanted: AuditQuery) -> AuditPage:
        found: list[AuditRecord] = []
        for record in self._backwards():
            if not _matches(record, wanted):
                continue
            if len(found) == wanted.limit:
                return AuditPage(records=found, cursor=found[-1].number)
            found.append(record)
        return AuditPage(records=found)

    def _backwards(self) -> Iterator[AuditRecord]:
        last = None
        for path in (self._file, self._old):
            for record in _records(path):
                if last is None or record.number < last:  # else the file was turned just now
                    last = record.number
                    yield record


def _matches(record: AuditRecord, wanted: AuditQuery) -> bool:
    return (
        (wanted.before is None or record.number < wanted.before)
        and (wanted.namespace is None or record.target.get("namespace") == wanted.namespace)
        and (wanted.caller is None or record.caller == wanted.caller)
        and (wanted.operation is None or record.operation == wanted.operation)
    )


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1)


def _records(path: Path) -> Iterator[AuditRecord]:
    with suppress(FileNotFoundError):
        for line in _lines_backwards(path):
            with suppress(msgspec.MsgspecError):  # cut short by a crash
                yield msgspec.json.decode(line, type=AuditRecord)


def _lines_backwards(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        position, rest = file.seek(0, os.SEEK_END), b""
        while position > 0:
            size = min(_BLOCK, position)
            position -= size
            file.seek(position)
            first, *lines = (file.read(size) + rest).split(b"\n")
            rest = first
            yield from (line for line in reversed(lines) if line)
        if rest:
            yield rest
