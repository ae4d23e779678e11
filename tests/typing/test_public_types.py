"""Types that users see. `mypy --strict` reads this file; running it only shows that it loads."""

from collections.abc import AsyncGenerator, AsyncIterator, Generator
from typing import assert_type

import atoll
import atoll.sync


async def asynchronous() -> None:
    async with atoll.local() as env:
        assert_type(env, atoll.Environment)
        assert_type(env.Sandbox, atoll.Namespace)
        sandbox = atoll.get_sandbox(env.Sandbox, "x", sleep_after="5m", instance_type="lite")
        assert_type(sandbox, atoll.Sandbox)
        assert_type(await sandbox.exec("x", timeout=None), atoll.ExecResult)
        assert_type(await sandbox.exec(["x"], stdin=iter([b"x"])), atoll.ExecResult)
        async for event in sandbox.exec_stream("x"):
            assert_type(event, atoll.ExecEvent)
        assert_type(sandbox.exec_stream("x").sse(), AsyncGenerator[bytes, None])
        assert_type(await sandbox.spawn("x"), atoll.ProcessHandle)
        assert_type((await sandbox.read_file("f")).content, str)
        assert_type((await sandbox.read_file("f", encoding="utf-8")).content, str)
        assert_type((await sandbox.read_file("f", encoding="bytes")).content, bytes)
        assert_type(await sandbox.read_file("f", encoding="none"), atoll.FileStream)
        assert_type(await sandbox.read_file_stream("f").metadata(), atoll.FileMeta)
        assert_type(await sandbox.write_file("f", _pieces()), atoll.WriteResult)
        assert_type(await sandbox.exists("f"), bool)
        assert_type(await sandbox.create_session(), atoll.Session)
        assert_type(await (await sandbox.get_session("s")).exec("x"), atoll.ExecResult)
        assert_type(await env.Sandbox.list(), atoll.SandboxPage)
        assert_type(await sandbox.get_state(), atoll.State)


async def _pieces() -> AsyncIterator[bytes]:
    yield b""


def blocking() -> None:
    with atoll.sync.local() as env:
        sandbox = atoll.sync.get_sandbox(env.Sandbox, "x")
        assert_type(sandbox.exec("x"), atoll.ExecResult)
        for event in sandbox.exec_stream("x"):
            assert_type(event, atoll.ExecEvent)
        assert_type(sandbox.exec_stream("x").sse(), Generator[bytes, None, None])
        assert_type(sandbox.spawn("x"), atoll.sync.ProcessHandle)
        assert_type(sandbox.read_file("f", encoding="bytes").content, bytes)
        assert_type(sandbox.read_file("f", encoding="none"), atoll.sync.FileStream)


def test_both_forms_are_written_with_the_same_words() -> None:
    assert asynchronous.__code__.co_argcount == blocking.__code__.co_argcount == 0
