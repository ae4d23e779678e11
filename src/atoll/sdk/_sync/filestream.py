"""A file that is being read: metadata, then bytes, over as many connections as it takes."""

from contextlib import closing

from msgspec import structs

from atoll.errors import ResourceBusyError, SandboxError
from atoll.sdk import _io, _shared, _sse
from atoll.sdk._sync.closable import ClosableStream
from atoll.sdk._sync.target import Address
from atoll.sdk._sync.transport import ConnectionLostError, chunks_of
from atoll.wire import ops
from atoll.wire.files import FileMeta


class FileStream(ClosableStream[bytes]):
    """An iterator of the bytes of a file. Close it, or read it to the end."""

    def __init__(self, address: Address, request: ops.ReadFile) -> None:
        self._reading = _Reading(address, request)
        super().__init__(self._reading.run())

    def metadata(self) -> FileMeta:
        """Return size, type and name of the file; opens it if it was not.

        Raises:
            FileNotFoundError: there is no file at the path.
        """
        while self._reading.metadata is None:
            super().__next__()  # an empty piece, right after the metadata
        return self._reading.metadata

    def __next__(self) -> bytes:
        while not (chunk := super().__next__()):
            pass
        return chunk

    def chunks(self) -> _io.Stream[bytes]:
        """Yield the bytes; closing this stops the reading."""
        try:
            for chunk in self:
                yield chunk
        finally:
            self.close()

    def sse(self) -> _io.Stream[bytes]:
        """Yield the file as the body of a ``text/event-stream`` answer, for 0.12 clients."""
        with closing(self._events):
            try:
                encoder = _sse.FileEncoder(self.metadata())
                yield encoder.start()
                for chunk in self:
                    yield encoder.chunk(chunk)
                yield encoder.end()
            except SandboxError as error:
                yield _sse.encode_error(error)


class _Reading:
    def __init__(self, address: Address, request: ops.ReadFile) -> None:
        self._address = address
        self._request = request
        self.metadata: FileMeta | None = None

    def run(self) -> _io.Stream[bytes]:
        self._address.ensure()
        request, broken = self._request, 0
        while broken < 3:
            call = _shared.build_call(ops.READ_FILE, self._address.params, request)
            try:
                with (
                    self._address.transport.send(call, ready=self._address.ready) as answer,
                    closing(chunks_of(answer)) as chunks,
                ):
                    self._check(_shared.read_metadata(ops.READ_FILE, answer.headers))
                    yield b""
                    for chunk in chunks:
                        request, broken = _after(request, len(chunk)), 0
                        yield chunk
                return
            except ConnectionLostError as error:
                broken, reason = broken + 1, str(error)
        raise _shared.lost("read_file", reason)

    def _check(self, metadata: FileMeta) -> None:
        if self.metadata is not None and metadata.etag != self.metadata.etag:
            raise ResourceBusyError(
                f"{metadata.path} changed while it was read",
                context={"path": metadata.path},
                suggestion="read it again from the start",
            )
        self.metadata = metadata


def _after(request: ops.ReadFile, count: int) -> ops.ReadFile:
    length = None if request.length is None else request.length - count
    return structs.replace(request, offset=request.offset + count, length=length)
