"""Streams of events as server-sent events, and back."""

from collections.abc import AsyncIterator

import atoll
from atoll import errors
from integration.sdk.engine_double import STARTED, Answer, EngineDouble, command, failing

EXEC = "POST /exec"


async def test_a_stream_can_be_the_body_of_a_web_answer(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, command(b"hi\n"))
    body = sandbox.exec_stream("echo hi").sse()
    events = [event async for event in atoll.parse_sse_stream(body)]
    assert [event["type"] for event in events] == ["start", "stdout", "complete"]
    assert events[2]["result"]["stdout"] == "hi\n"


async def test_an_error_before_the_first_event_is_an_event_too(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, failing(errors.ImageNotFoundError("no such image")))
    body = sandbox.exec_stream("x").sse()
    assert [event async for event in atoll.parse_sse_stream(body)] == [
        {"type": "error", "error": "no such image", "code": "IMAGE_NOT_FOUND"}
    ]


async def test_a_visitor_who_leaves_ends_the_command(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, Answer(STARTED, hold=True))
    engine.script("DELETE ", Answer())
    body = sandbox.exec_stream("x").sse()
    await anext(body)
    await body.aclose()
    assert len(engine.requests("DELETE ")) == 1


class Response:
    """A response of an HTTP client."""

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        for byte in b'data: {"a": "\xc3\xbc"}\r\n\r\n':
            yield bytes([byte])


async def test_responses_and_iterables_are_parsed() -> None:
    assert [event async for event in atoll.parse_sse_stream(Response())] == [{"a": "ü"}]
    assert [event async for event in atoll.parse_sse_stream(["data: 1\n", "\n"])] == [1]


def test_the_blocking_form_gives_the_same(
    engine: EngineDouble, blocking: "atoll.sync.Sandbox"
) -> None:
    engine.script(EXEC, command(b"hi\n"))
    body = blocking.exec_stream("echo hi").sse()
    events = list(atoll.sync.parse_sse_stream(body))
    assert [event["type"] for event in events] == ["start", "stdout", "complete"]
