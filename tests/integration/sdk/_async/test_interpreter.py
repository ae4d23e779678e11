"""The interpreter's part of the SDK with a real engine (fake runtime); cases C have the rest."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest

import atoll
from integration.cli.conftest import engine

__all__ = ["engine"]


@pytest.fixture
async def box(engine: str) -> AsyncIterator[atoll.Sandbox]:
    async with atoll.connect(engine) as env:
        made = atoll.get_sandbox(env.Sandbox, f"i-{uuid.uuid4().hex[:8]}")
        yield made
        await made.destroy()


async def test_a_context_is_its_id_language_and_times(box: atoll.Sandbox) -> None:
    context = await box.create_code_context(language="python3", timeout="5s")
    assert context.language == "python"
    assert context.cwd.endswith("/workspace")
    assert context.last_used >= context.created_at
    assert context.to_dict()["id"] == context.id
    assert context.id in repr(context)
    assert (await box.run_code("1", context=context.id)).context_id == context.id
    await box.delete_code_context(context.id)
    assert await box.list_code_contexts() == []


async def test_a_session_gives_its_contexts_directory_and_variables(box: atoll.Sandbox) -> None:
    session = await box.create_session(env={"OF_SESSION": "1"}, cwd="/tmp")
    result = await session.run_code("import os; [os.getcwd(), os.environ['OF_SESSION']]")
    assert result.results[0].json == ["/tmp", "1"]
    assert (
        await box.run_code("'OF_SESSION' in os.environ if 'os' in globals() else 0")
    ).text == "0"


async def test_closing_a_stream_interrupts_the_code(box: atoll.Sandbox) -> None:
    context = await box.create_code_context()
    async with context.run_code_stream("print('go')\nimport time\ntime.sleep(60)") as stream:
        async for event in stream:
            if isinstance(event, atoll.Stdout):
                break
    assert (await context.run_code("1", timeout=20)).text == "1"
    await context.delete()


async def test_contexts_of_a_session_end_with_it(box: atoll.Sandbox) -> None:
    session = await box.create_session()
    context = await session.create_code_context()
    await session.run_code("1")
    await session.delete()
    for _ in range(200):
        if not await box.list_code_contexts():
            break
        await asyncio.sleep(0.05)
    with pytest.raises(atoll.errors.ContextNotFoundError):
        await box.run_code("1", context=context)
