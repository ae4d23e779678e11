"""File calls: what is sent, and content in the form that was asked for."""

import io
import json
from typing import Any

import pytest

import atoll
from atoll import errors
from integration.sdk.engine_double import Answer, EngineDouble

PUT = "PUT /files"
WRITTEN = Answer(b'{"path": "/workspace/x", "size": 3}')


def content(data: bytes, *, binary: bool = False) -> Answer:
    meta = {
        "path": "/workspace/x",
        "size": len(data),
        "mimeType": "text/plain",
        "isBinary": binary,
        "encoding": "utf-8",
        "etag": "e1",
    }
    return Answer(data, headers={"atoll-result": json.dumps(meta)})


async def test_content_travels_as_raw_bytes(engine: EngineDouble, sandbox: atoll.Sandbox) -> None:
    engine.script(PUT, WRITTEN)
    contents: list[Any] = ["ü\0", "ü\0".encode(), io.BytesIO("ü\0".encode()), iter(["ü", b"\0"])]
    for wanted in contents:
        assert (await sandbox.write_file("x", wanted)).size == 3
        assert engine.seen[-1].body == "ü\0".encode()
    await sandbox.write_file("x", "AAE=", encoding="base64", mode=0o600, append=True)
    assert engine.seen[-1].body == b"\0\1"
    assert engine.seen[-1].query == "path=x&mode=384&append=true"


async def test_an_encoding_that_does_not_fit_costs_no_request(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    with pytest.raises(errors.ValidationFailedError):
        await sandbox.write_file("x", "not base64!", encoding="base64")
    with pytest.raises(errors.ValidationFailedError):
        await sandbox.write_file("x", iter([b"x"]), encoding="base64")
    with pytest.raises(errors.ValidationFailedError, match="klingon"):
        await sandbox.read_file("x", encoding="klingon")
    assert engine.seen == []


async def test_arguments_of_the_wrong_type_cost_no_request(
    engine: EngineDouble, env: atoll.Environment
) -> None:
    sandbox: Any = atoll.get_sandbox(env.Sandbox, "b", keep_alive=True)
    for call in (
        sandbox.write_file("x", 5),
        sandbox.write_file(5, "x"),
        sandbox.write_file("x", "x", mode="755"),
        sandbox.read_file(5),
        sandbox.mkdir(5),
        sandbox.list_files("/", limit="5"),
        sandbox.replace_in_files(["x"], "a", 5),
    ):
        with pytest.raises(errors.ValidationFailedError):
            await call
    for watch in ({"path": 5}, {"path": "/", "include": 5}):
        with pytest.raises(errors.ValidationFailedError):
            sandbox.watch(**watch)
    assert engine.seen == []


async def test_a_piece_that_is_a_number_does_not_become_zeros(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(PUT, WRITTEN)
    with pytest.raises(errors.ValidationFailedError, match="int"):
        await sandbox.write_file("x", [5])  # type: ignore[list-item]
    await sandbox.write_file("x", bytearray(b"abc"))
    assert engine.seen[-1].body == b"abc"


async def test_content_is_read_in_the_form_asked_for(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script("GET /files", content(b"abc"))
    assert (await sandbox.read_file("x")).content == "abc"
    assert (await sandbox.read_file("x", encoding="bytes")).content == b"abc"
    assert (await sandbox.read_file("x", encoding="base64")).content == "YWJj"
    stream = await sandbox.read_file("x", encoding="none", offset=1, length=9)
    assert engine.seen[-1].query == "path=x&offset=1&length=9"
    assert [chunk async for chunk in stream] == [b"abc"]


def test_the_blocking_form_reads_and_writes_too(
    engine: EngineDouble, blocking: "atoll.sync.Sandbox"
) -> None:
    engine.script(PUT, WRITTEN)
    engine.script("GET /files", content(b"abc"))
    blocking.write_file("x", iter(["a", "bc"]))
    assert engine.seen[-1].body == b"abc"
    assert blocking.read_file("x").content == "abc"
