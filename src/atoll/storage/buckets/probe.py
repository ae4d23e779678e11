"""Asks a bucket, with the credentials, whether it is there: one signed request before a mount.

The client says little about why it failed; the server's answer names it. The request goes where the
client's will go, through a connection that the caller opens. S3's signatures are version 4.
"""

import asyncio
import hashlib
import hmac
import re
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from socket import socket
from urllib.parse import quote

import structlog

from atoll.errors import BucketMountError
from atoll.storage.buckets import azure
from atoll.storage.buckets.options import Credentials, Source

log = structlog.get_logger(__name__)

TIMEOUT = 10.0
"""Seconds for the whole request."""

_MAX_ANSWER = 64 << 10
_CODE = re.compile(rb"<Code>([A-Za-z0-9]{1,64})</Code>")
_MESSAGE = re.compile(rb"<Message>([^<]{1,500})</Message>")
_LISTINGS = (b"ListBucketResult", b"EnumerationResults")
_EMPTY = hashlib.sha256(b"").hexdigest()

Connect = Callable[[str, int], Awaitable[socket]]


def signed(source: Source, credentials: Credentials, at: datetime) -> bytes:
    """Return the bytes of a request that lists at most one key. Pure."""
    host, path = _place(source)
    query = f"list-type=2&max-keys=1&prefix={quote(source.prefix and source.prefix + '/', safe='')}"
    stamp, scope = at.strftime("%Y%m%dT%H%M%SZ"), f"{at:%Y%m%d}/{source.region}/s3/aws4_request"
    headers = {"host": host, "x-amz-content-sha256": _EMPTY, "x-amz-date": stamp}
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    canonical = f"GET\n{path}\n{query}\n{lines}\n{names}\n{_EMPTY}"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{credentials.secret_access_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key_id}/{scope},"
        f" SignedHeaders={names}, Signature={signature}"
    )
    headers["connection"] = "close"
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"GET {path}?{query} HTTP/1.1\r\n{head}\r\n".encode()


def _place(source: Source) -> tuple[str, str]:
    name = str(source.endpoint).partition("://")[2]
    return (name, f"/{source.bucket}/") if source.by_path else (f"{source.bucket}.{name}", "/")


async def ask(source: Source, credentials: Credentials, connect: Connect) -> None:
    """Return if the bucket can be read with *credentials*.

    Args:
        connect: opens a connection to a host and port, from where the client will run.

    Raises:
        BucketMountError: it cannot; the message is the server's.
    """
    ask_so = azure.listing if source.provider == "azure" else signed
    request = ask_so(source, credentials, datetime.now(UTC))
    try:
        async with asyncio.timeout(TIMEOUT):
            answer = await _exchanged(source, request, connect)
    except (OSError, UnicodeError) as error:
        reason = "no answer in time" if isinstance(error, TimeoutError) else str(error)
        raise _failed(
            source, "unreachable", f"{source.endpoint} cannot be reached: {reason}"
        ) from error
    judge(source, answer)


async def _exchanged(source: Source, request: bytes, connect: Connect) -> bytes:
    host, _ = _place(source)
    name = host.partition(":")[0]
    context = ssl.create_default_context() if source.endpoint.scheme == "https" else None
    reader, writer = await asyncio.open_connection(
        sock=await connect(name, source.endpoint.port),
        ssl=context,
        server_hostname=name if context else None,
    )
    try:
        writer.write(request)
        await writer.drain()
        answer = b""
        while len(answer) < _MAX_ANSWER and (piece := await reader.read(_MAX_ANSWER)):
            answer += piece
        return answer
    finally:
        writer.close()


def judge(source: Source, answer: bytes) -> None:
    """Raise what an answer means, unless it is a listing. Pure."""
    head, _, body = answer.partition(b"\r\n\r\n")
    match = re.match(rb"HTTP/1\.[01] (\d{3})", head)
    status = int(match[1]) if match else 0
    if status == 200 and any(name in body for name in _LISTINGS):
        return
    code, message = (p.search(body) for p in (_CODE, _MESSAGE))
    named = code[1].decode() if code else f"HTTP {status}" if status else "no S3 server"
    said = message[1].decode(errors="replace").splitlines()[0] if message else ""
    text = f"{named}: {said}" if said else named
    raise _failed(source, named, f"bucket {source.bucket!r} cannot be mounted: {text}", status)


ADVICE = {
    "NoSuchBucket": "make the bucket first, or check its name and endpoint",
    "InvalidAccessKeyId": "check the access key id, and that it is one of this endpoint",
    "SignatureDoesNotMatch": "check the secret access key",
    "ContainerNotFound": "make the container first, or check its name and endpoint",
    "AuthenticationFailed": "check the account's name and key",
    "AuthorizationFailure": "check the account's name and key",
    "AccessDenied": "the key needs the right to list and read this bucket",
    "unreachable": "check the endpoint, and that the sandbox may reach it",
}


def _failed(source: Source, code: str, message: str, status: int = 0) -> BucketMountError:
    context = {"bucket": source.bucket, "endpoint": str(source.endpoint), "reason": code}
    if status:
        context["status"] = str(status)
    return BucketMountError(message, context=context, suggestion=ADVICE.get(code))
