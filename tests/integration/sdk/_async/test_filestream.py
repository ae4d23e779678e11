"""A file that is read goes on where a lost connection left it, or says that it changed."""

import pytest

import atoll
from atoll import errors
from integration.sdk._async.test_files import content
from integration.sdk.engine_double import Answer, EngineDouble, failing

GET = "GET /files"


def part(answer: Answer, **changes: object) -> Answer:
    for name, value in changes.items():
        setattr(answer, name, value)
    return answer


async def test_a_read_that_is_cut_goes_on_at_the_next_byte(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(GET, part(content(b"abcdef"), cut=4), content(b"ef"))
    read = await sandbox.read_file("x", encoding="bytes", length=6)
    assert read.content == b"abcdef"
    assert engine.seen[1].query == "path=x&offset=4&length=2"


async def test_a_file_that_changed_meanwhile_is_not_mixed(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    other = content(b"XX")
    other.headers["atoll-result"] = other.headers["atoll-result"].replace("e1", "e2")
    engine.script(GET, part(content(b"abcdef"), cut=4), other)
    with pytest.raises(errors.ResourceBusyError, match="changed"):
        await sandbox.read_file("x")


async def test_a_read_that_is_cut_again_and_again_is_an_error(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(GET, part(content(b"abcdef"), cut=0))
    with pytest.raises(errors.OperationInterruptedError):
        await sandbox.read_file("x")
    assert len(engine.seen) == 3


async def test_metadata_is_known_before_the_content(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(GET, content(b"abc"))
    async with sandbox.read_file_stream("x") as stream:
        assert (await stream.metadata()).size == 3
        assert (await stream.metadata()).etag == "e1"
        assert [chunk async for chunk in stream] == [b"abc"]
    assert len(engine.seen) == 1


async def test_an_empty_file_has_metadata_and_no_chunks(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(GET, content(b""))
    stream = sandbox.read_file_stream("x")
    assert (await stream.metadata()).size == 0
    assert [chunk async for chunk in stream] == []


async def test_a_file_can_be_the_body_of_a_web_answer(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(GET, content(b"abc"), failing(errors.FileNotFoundError("no x")))
    parsed = [
        [event async for event in atoll.parse_sse_stream(sandbox.read_file_stream("x").sse())]
        for _ in range(2)
    ]
    assert [event["type"] for event in parsed[0]] == ["metadata", "chunk", "complete"]
    assert parsed[1] == [{"type": "error", "error": "no x", "code": "FILE_NOT_FOUND"}]
