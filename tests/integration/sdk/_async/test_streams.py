"""Streams of events as server-sent events, and back."""

import asyncio
import gc
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator

import pytest

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


async def test_a_stream_that_is_dropped_ends_its_command_with_a_warning(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, Answer(STARTED, hold=True))
    engine.script("DELETE ", Answer())
    stream = sandbox.exec_stream("sleep 60")
    async for _ in stream:
        break
    assert engine.requests("DELETE ") == []
    with pytest.warns(ResourceWarning, match="unclosed ExecStream"):
        del stream
    await asyncio.to_thread(engine.wait_for, "DELETE ")


async def test_a_stream_that_was_read_or_closed_or_never_begun_is_no_warning(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, command(b"x"))
    async for _ in sandbox.exec_stream("x"):
        pass
    engine.script(EXEC, Answer(STARTED, hold=True))
    engine.script("DELETE ", Answer())
    async with sandbox.exec_stream("x") as stream:
        await anext(stream)
    sandbox.exec_stream("x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del stream
        gc.collect()


async def test_a_handle_that_is_dropped_ends_its_command_with_a_warning(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, Answer(STARTED, hold=True))
    engine.script("DELETE ", Answer())
    handle = await sandbox.spawn("sleep 60")
    del handle
    with pytest.warns(ResourceWarning, match="unclosed ProcessHandle"):
        gc.collect()
    await asyncio.to_thread(engine.wait_for, "DELETE ")


@pytest.mark.parametrize(
    "use",
    [
        "for event in stream: break",
        "other = [stream]; next(stream)",
        "body = stream.sse(); next(body)",
        "handle = box.spawn('x')",
        "handle = box.spawn('x'); import sys; sys.cycle = handle; handle.self = handle",
        "class Late: pass\nlate = Late(); late.stream = stream; late.late = late; next(stream)",
    ],
)
def test_a_program_that_ends_with_an_open_stream_ends_the_command_in_silence(
    engine: EngineDouble, use: str
) -> None:
    engine.script(EXEC, Answer(STARTED, hold=True))
    engine.script("DELETE ", Answer())
    program = (
        f"import atoll.sync as a\nbox = a.get_sandbox(a.connect({engine.url!r}).Sandbox, 'b')\n"
        f"stream = box.exec_stream('sleep 60')\n{use}\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, b"")
    if "sse" not in use:  # a bare generator: the engine sees the connection end
        assert len(engine.requests("DELETE ")) == 1


@pytest.mark.parametrize("use", ["anext(stream)", "box.spawn('x')"])
def test_an_asynchronous_program_ends_in_silence_too(engine: EngineDouble, use: str) -> None:
    engine.script(EXEC, Answer(STARTED, hold=True))
    engine.script("DELETE ", Answer())
    program = (
        "import asyncio, atoll as a\nasync def main():\n global box, stream, kept\n"
        f" box = a.get_sandbox(a.connect({engine.url!r}).Sandbox, 'b')\n"
        f" stream = box.exec_stream('sleep 60')\n kept = await {use}\nasyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(engine.requests("DELETE ")) == 1
