"""HTTP to a service inside a sandbox: one request by a connection of its own."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Self

from atoll.errors import ServiceNotRespondingError, TimeoutError
from atoll.sdk import _aio
from atoll.sdk._async.raw import RawConnection
from atoll.sdk._ports import Fields


class ServiceResponse:
    """What a service answered: status and headers are there, the body is read as it comes.

    Use it in an ``async with`` block, or read the body to its end.
    """

    def __init__(
        self, connection: RawConnection, status: int, fields: Fields, chunks: _aio.Stream[bytes]
    ) -> None:
        self.status = status
        self.fields = [
            (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in fields
        ]
        """Every header field in order; `headers` has those of one name joined."""

        self._connection = connection
        self._chunks = chunks

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status <= 299

    @property
    def headers(self) -> Mapping[str, str]:
        """Header fields by lower-case name."""
        joined: dict[str, str] = {}
        for name, value in self.fields:
            joined[name] = f"{joined[name]}, {value}" if name in joined else value
        return joined

    @property
    def body(self) -> AsyncIterator[bytes]:
        """The body, piece by piece."""
        return self._read()

    async def _read(self) -> AsyncIterator[bytes]:
        import httpcore2

        try:
            async for chunk in self._chunks:
                yield chunk
        except (
            httpcore2.NetworkError,
            httpcore2.ProtocolError,
            httpcore2.TimeoutException,
        ) as error:
            raise ServiceNotRespondingError(
                f"the answer of the service was cut: {error}"
            ) from error
        finally:
            await self.aclose()

    async def bytes(self) -> bytes:
        """Read the whole body."""
        return b"".join([chunk async for chunk in self.body])

    async def text(self) -> str:
        """Read the whole body as UTF-8; what is not UTF-8 is replaced."""
        return (await self.bytes()).decode("utf-8", "replace")

    async def json(self) -> Any:
        """Read the whole body as JSON; raise `ValueError` when it is none."""
        return json.loads(await self.bytes())

    async def aclose(self) -> None:
        """End the connection, whether the body was read or not."""
        await self._connection.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def ask(
    connection: RawConnection,
    method: str,
    target: str,
    fields: Fields,
    body: Any,
    timeout: float | None,
) -> ServiceResponse:
    """Send a request and return its answer as soon as its head is there.

    Args:
        body: bytes, text, a file object or an iterable of bytes; None: there is none.
        timeout: seconds until the head of the answer; None: any time.

    Raises:
        ServiceNotRespondingError: no answer came, or none of HTTP.
        TimeoutError: the time was over.
    """
    import httpcore2

    content, framing = _content(body, fields)
    origin = httpcore2.Origin(b"http", b"localhost", 80)
    http = httpcore2.AsyncHTTP11Connection(origin, connection.stream)
    request = httpcore2.Request(
        method.encode(),
        httpcore2.URL(scheme=b"http", host=b"localhost", port=80, target=target.encode()),
        headers=[*fields, *framing, (b"Connection", b"close")],
        content=content,
        extensions={"timeout": {"read": timeout}},
    )
    try:
        answer = await http.handle_async_request(request)
    except httpcore2.TimeoutException as error:
        await connection.aclose()
        raise TimeoutError(
            f"the service did not answer within {timeout} s", context={"seconds": timeout}
        ) from error
    except (httpcore2.NetworkError, httpcore2.ProtocolError) as error:
        await connection.aclose()
        raise ServiceNotRespondingError(f"the service gave no proper answer: {error}") from error
    except BaseException:
        await connection.aclose()
        raise
    chunks: Any = answer.stream
    return ServiceResponse(connection, answer.status, list(answer.headers), chunks)


def _content(body: Any, fields: Fields) -> tuple[Any, Fields]:
    """Return a body to send and the fields that frame it, as far as *fields* do not."""
    framed = any(name.lower() == b"content-length" for name, _ in fields)
    if isinstance(body, str):
        body = _aio.as_bytes(body)
    if body is None or isinstance(body, bytes | bytearray):
        length = [] if body is None or framed else [(b"Content-Length", b"%d" % len(body))]
        return bytes(body or b""), length
    return _aio.pieces(body), [] if framed else [(b"Transfer-Encoding", b"chunked")]
