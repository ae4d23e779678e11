from pathlib import Path

import pytest

import atoll
from atoll.wire import frames
from atoll.wire.frames import Kind
from integration.sdk.engine_double import STARTED, Answer, EngineDouble, failing, frame, out

LOGS = "GET /logs/stream"
END = frame(Kind.EXITED, exit_code=0, offset=6)


async def data(stream: atoll.LogStream) -> list[tuple[int, bytes]]:
    return [(event.offset, event.data) async for event in stream if isinstance(event, atoll.Stdout)]


async def test_a_lost_stream_goes_on_where_it_was(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    first = STARTED + out(0, b"abc")
    engine.script(
        LOGS,
        Answer(first, cut=len(first)),
        Answer(silent=True),
        Answer(STARTED + out(0, b"abc") + out(3, b"def") + END),
    )
    assert await data(sandbox.stream_process_logs("p")) == [(0, b"abc"), (3, b"def")]
    queries = [seen.query for seen in engine.requests(LOGS)]
    assert queries == ["", "fromOffset=3", "fromOffset=3"]


async def test_a_stream_begins_at_an_offset_and_tells_where_it_is(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(LOGS, Answer(STARTED + out(3, b"def") + END))
    stream = sandbox.stream_process_logs("p", from_offset=3)
    assert await data(stream) == [(3, b"def")]
    assert stream.offset == 6


async def test_without_follow_the_stream_ends_with_what_there_is(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    ending = frames.encode_json(Kind.END, {"offset": 3})
    engine.script(LOGS, Answer(STARTED + out(0, b"abc") + ending))
    logs = await sandbox.get_process_logs("p")
    assert (logs.stdout, logs.truncated) == ("abc", False)
    assert engine.requests(LOGS)[0].query == "follow=false"


async def test_an_error_of_the_engine_is_raised(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(LOGS, failing(atoll.ProcessNotFoundError("none")))
    with pytest.raises(atoll.ProcessNotFoundError):
        await data(sandbox.stream_process_logs("p"))
    events = [event async for event in sandbox.stream_process_logs("p").sse()]
    assert len(events) == 1
    assert b'"error"' in events[0]


async def test_server_sent_events_have_the_process_id(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(LOGS, Answer(STARTED + out(0, b"a\n") + frame(Kind.HEARTBEAT) + END))
    events = [event async for event in sandbox.stream_process_logs("p").sse()]
    assert [b'"processId":"p"' in event for event in events] == [True, True]


def test_the_blocking_stream_is_the_same(engine: EngineDouble, tmp_path: Path) -> None:
    engine.script(LOGS, Answer(STARTED + out(0, b"abc") + END))
    with atoll.sync.connect(engine.url) as env:
        stream = atoll.sync.get_sandbox(env.Sandbox, "box").stream_process_logs("p")
        with stream:
            assert [e.data for e in stream if isinstance(e, atoll.Stdout)] == [b"abc"]
