import json

from atoll.errors import (
    InvalidTokenError,
    RateLimitedError,
    SandboxError,
    StalePreviewUrlError,
    UnauthorizedError,
)
from atoll.proxy import refusal
from atoll.wire.http1 import Data, Fields, Response, ResponseReader


def told(error: SandboxError, accept: bytes = b"*/*") -> tuple[Response, dict[bytes, bytes], bytes]:
    fields: Fields = [(b"Accept", accept)]
    reader = ResponseReader()
    reader.expect(b"GET")
    events = reader.feed(refusal.write(error, "id", fields, head_only=False, close=False))
    head = events[0]
    assert isinstance(head, Response)
    body = b"".join(event.data for event in events if isinstance(event, Data))
    return head, dict(head.fields), body


def test_programs_get_the_envelope() -> None:
    head, fields, body = told(StalePreviewUrlError("asleep", context={"port": 1}))
    assert (head.status, head.reason) == (410, b"Gone")
    assert fields[b"Content-Type"] == b"application/json"
    assert fields[b"Cache-Control"] == b"no-store"
    envelope = json.loads(body)
    assert (envelope["code"], envelope["requestId"]) == ("STALE_PREVIEW_URL", "id")
    assert envelope["context"] == {"port": 1}


def test_browsers_get_a_page_that_runs_nothing() -> None:
    _, fields, body = told(
        InvalidTokenError("<script>", suggestion='"&'), b"text/html,application/xhtml+xml"
    )
    assert fields[b"Content-Type"].startswith(b"text/html")
    assert b"There is no preview at this address" in body
    assert b"<script>" not in body
    assert b"&lt;script&gt;" in body


def test_what_the_caller_can_do_is_in_the_head() -> None:
    assert told(RateLimitedError("x", retry_after=7.2))[1][b"Retry-After"] == b"7"
    assert told(UnauthorizedError("x"))[1][b"WWW-Authenticate"] == b"Bearer"


def test_an_answer_to_head_has_no_body() -> None:
    answer = refusal.write(InvalidTokenError(), "id", [], head_only=True, close=True)
    assert answer.endswith(b"\r\n\r\n")
    assert b"Connection: close" in answer
