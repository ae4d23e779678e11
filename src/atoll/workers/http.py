"""Request, Response, Headers and URL as a Worker sees them.

The shapes follow the Fetch API with Python's names. Bodies are streams: a request's body is read
at most once, a response's body is sent as it is produced.
"""

import json
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
)
from typing import Any, Self
from urllib.parse import SplitResult, parse_qsl, urlsplit

import msgspec

Body = str | bytes | AsyncIterator[bytes] | None


class Headers(MutableMapping[str, str]):
    """Header fields: names are case-insensitive, and one name may have several values.

    ``headers[name]`` joins the values with a comma, as HTTP defines; `get_all` keeps them apart.
    """

    def __init__(self, fields: Mapping[str, str] | Iterable[tuple[str, str]] | None = None) -> None:
        items = fields.items() if isinstance(fields, Mapping) else fields or ()
        self._fields: list[tuple[str, str]] = [(k.lower(), v) for k, v in items]

    def get_all(self, name: str) -> list[str]:
        """Return every value of *name* in order."""
        return [value for key, value in self._fields if key == name.lower()]

    def append(self, name: str, value: str) -> None:
        """Add a value and keep the ones that are there."""
        self._fields.append((name.lower(), value))

    def multi_items(self) -> list[tuple[str, str]]:
        """Return all fields in order, names in lower case."""
        return list(self._fields)

    def __getitem__(self, name: str) -> str:
        values = self.get_all(name)
        if not values:
            raise KeyError(name)
        return ", ".join(values)

    def __setitem__(self, name: str, value: str) -> None:
        self._fields = [field for field in self._fields if field[0] != name.lower()]
        self.append(name, value)

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self._fields = [field for field in self._fields if field[0] != name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self._fields))

    def __len__(self) -> int:
        return len(dict(self._fields))

    def __repr__(self) -> str:
        return f"Headers({self._fields!r})"


class URL(str):
    """A URL that can be asked for its parts; it is a plain string everywhere else."""

    __slots__ = ("_parts",)
    _parts: SplitResult

    def __new__(cls, text: str) -> Self:
        """Parse *text*; raise `ValueError` when it is no URL."""
        url = super().__new__(cls, text)
        url._parts = urlsplit(text)
        return url

    @property
    def scheme(self) -> str:
        """``http`` or ``https``."""
        return self._parts.scheme

    @property
    def hostname(self) -> str:
        """Host name in lower case, without the port."""
        return self._parts.hostname or ""

    @property
    def host(self) -> str:
        """Host name with the port, if the URL names one: what `expose_port` takes."""
        return self._parts.netloc.rpartition("@")[2].lower()

    @property
    def port(self) -> int | None:
        """Port, or None when the URL names none."""
        return self._parts.port

    @property
    def pathname(self) -> str:
        """Path, at least ``/``."""
        return self._parts.path or "/"

    @property
    def search_params(self) -> dict[str, str]:
        """Query parameters; of a repeated one the last."""
        return dict(parse_qsl(self._parts.query, keep_blank_values=True))


class Request:
    """A request to the Worker. `method`, `url`, `headers`; the body can be read once.

    Args:
        url: where it goes; or another request, which it is like but for what is given besides. The
            other's body goes over to it.
        method: ``GET`` where nothing says another.
        headers: all of them.
        body: text, bytes, an async iterator of bytes, or None.
        client: address of the visitor.

    Raises:
        RuntimeError: the body of the other request was read already; give the new one its own.
        TypeError: an argument is of another type.
        ValueError: it is no URL.
    """

    def __init__(
        self,
        url: "str | Request",
        *,
        method: str | None = None,
        headers: Headers | Mapping[str, str] | None = None,
        body: Body = None,
        client: str | None = None,
    ) -> None:
        given = url if isinstance(url, Request) else None
        if not isinstance(url, str | Request):
            raise TypeError(f"a request has a URL, or is made of one, not {type(url).__name__}")
        self._url = URL(url if isinstance(url, str) else url.url)
        self.client: str | None = client or (given.client if given else None)
        """Address of the visitor, where it is known."""

        self.method: str = (method or (given.method if given else "GET")).upper()
        if given and headers is None:
            headers = Headers(given.headers.multi_items())
        self.headers: Headers = headers if isinstance(headers, Headers) else Headers(headers)
        self._body = given.hand_over() if given and body is None else _checked(body)
        self._used = False

    @property
    def url(self) -> URL:
        """Where it goes; may be set."""
        return self._url

    @url.setter
    def url(self, url: str) -> None:
        self._url = URL(url)

    @property
    def is_read(self) -> bool:
        """Whether the body was read, or is being read."""
        return self._used

    @property
    def body(self) -> AsyncIterator[bytes]:
        """The body as a stream; can be handed to ``sandbox.write_file``.

        Raises:
            RuntimeError: the body was read before.
        """
        if self._used:
            raise RuntimeError("the body of this request was read already")
        self._used = True
        return _stream(self._body)

    def hand_over(self) -> Body:
        """Return the body for another request; raise `RuntimeError` where it was read before."""
        if self._used and self._body:
            raise RuntimeError(
                "the body of this request was read already: give the new one its own"
            )
        self._used = True
        return self._body

    async def bytes(self) -> bytes:
        """Read the whole body."""
        return b"".join([chunk async for chunk in self.body])

    async def text(self) -> str:
        """Read the whole body as UTF-8; invalid bytes are replaced, as Fetch does."""
        return (await self.bytes()).decode("utf-8", "replace")

    async def json(self) -> Any:
        """Read the whole body as JSON; raise `ValueError` when it is not."""
        return json.loads(await self.bytes())

    async def form_data(self) -> dict[str, Any]:
        """Read a form, urlencoded or multipart; files are starlette's `UploadFile`."""
        from starlette.datastructures import Headers as StarletteHeaders
        from starlette.formparsers import FormParser, MultiPartParser

        headers = StarletteHeaders(dict(self.headers))
        multipart = self.headers.get("content-type", "").startswith("multipart/form-data")
        parser = (MultiPartParser if multipart else FormParser)(headers, _generator(self.body))
        return dict(await parser.parse())


class _JsonMember:
    """``Response.json(data)`` makes a response; ``await response.json()`` reads one."""

    def __get__(self, instance: "Response | None", owner: type["Response"]) -> Callable[..., Any]:
        return owner.from_json if instance is None else instance.read_json


class Response:
    """What a Worker answers.

    Args:
        body: text, bytes, an async iterator of bytes (sent as it is produced), or None.
        status: HTTP status.
        headers: fields; ``content-type`` has a default for text.
    """

    json = _JsonMember()

    def __init__(
        self,
        body: Body = None,
        status: int = 200,
        headers: Headers | Mapping[str, str] | None = None,
    ) -> None:
        if not 100 <= status <= 599:
            raise ValueError(f"{status} is not an HTTP status")
        self.status = status
        self.headers = headers if isinstance(headers, Headers) else Headers(headers)
        if isinstance(body, str):
            self.headers.setdefault("content-type", "text/plain;charset=UTF-8")
        self._body = _checked(body)

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status <= 299

    @property
    def body(self) -> AsyncIterator[bytes]:
        """The body as a stream."""
        return _stream(self._body)

    async def bytes(self) -> bytes:
        """Read the whole body."""
        return b"".join([chunk async for chunk in self.body])

    async def text(self) -> str:
        """Read the whole body as UTF-8."""
        return (await self.bytes()).decode("utf-8", "replace")

    async def read_json(self) -> Any:
        """Read the whole body as JSON; also ``await response.json()``."""
        return json.loads(await self.bytes())

    @classmethod
    def from_json(
        cls,
        data: Any,
        status: int = 200,
        headers: Headers | Mapping[str, str] | None = None,
    ) -> "Response":
        """Make a response of *data*; also ``Response.json(data)``.

        Results of the SDK are accepted; fields of theirs that have no value are left out, as they
        are in JavaScript.
        """
        text = json.dumps(data, default=_to_wire, ensure_ascii=False, allow_nan=False)
        response = cls(text.encode(), status, headers)
        response.headers.setdefault("content-type", "application/json")
        return response

    @classmethod
    def redirect(cls, url: str, status: int = 302) -> "Response":
        """Return a redirect to *url*; raise `ValueError` when *status* is not one of a redirect."""
        if status not in {301, 302, 303, 307, 308}:
            raise ValueError(f"{status} is not the status of a redirect")
        return cls(None, status, {"location": url})


def _to_wire(value: Any) -> Any:
    """Encode what the SDK returns: result structs by their wire form, datetimes as ISO 8601."""
    if hasattr(value, "to_dict"):
        return _without_unset(value, value.to_dict())
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} cannot be encoded as JSON")


def _without_unset(value: Any, wire: Any) -> Any:
    """Leave unset fields of structs out of *wire*; null in data of the user's own stays."""
    if isinstance(value, list | tuple) and isinstance(wire, list) and len(value) == len(wire):
        return [_without_unset(*pair) for pair in zip(value, wire, strict=True)]
    if not hasattr(value, "to_dict") or not isinstance(wire, dict):
        return wire
    fields = msgspec.structs.fields(value) if isinstance(value, msgspec.Struct) else ()
    names = {field.encode_name: field.name for field in fields}
    return {
        key: _without_unset(getattr(value, names[key]), one) if key in names else one
        for key, one in wire.items()
        if one is not None
    }


def _checked(body: Any) -> Body:
    """Return *body*; raise `TypeError` where it is none, rather than when it is sent."""
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    if body is None or isinstance(body, str | bytes | AsyncIterable):
        return body  # type: ignore[return-value]
    raise TypeError(
        f"a body is text, bytes, an async iterator of bytes or None, not {type(body).__name__}"
    )


async def _generator(stream: AsyncIterator[bytes]) -> Any:
    async for chunk in stream:
        yield chunk


async def _stream(body: Body) -> AsyncIterator[bytes]:
    if isinstance(body, str):
        yield body.encode()
    elif isinstance(body, bytes):
        yield body
    elif body is not None:
        async for chunk in body:
            yield chunk
