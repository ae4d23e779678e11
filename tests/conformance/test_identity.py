"""A name is a sandbox: cases T01."""

import asyncio

import pytest

import atoll
from atoll.errors import SandboxNotFoundError
from conformance.clients import Client


@pytest.mark.clients("sync", "http")
async def test_t01_parallel_first_calls_make_one_sandbox(box: Client, sandbox_id: str) -> None:
    note = ["sh", "-c", f"echo x >> /tmp/{sandbox_id}"]
    outcomes = await asyncio.gather(*(box.exec(note) for _ in range(20)))
    assert [outcome.code for outcome in outcomes] == [0] * 20
    counted = await box.exec(["sh", "-c", f"wc -l < /tmp/{sandbox_id}; rm /tmp/{sandbox_id}"])
    assert counted.text.strip() == "20"


async def test_t01_an_id_may_be_used_again_after_destroy(sandbox: atoll.Sandbox) -> None:
    await asyncio.gather(*(sandbox.exec(["true"]) for _ in range(20)))
    first = await sandbox.info()
    await sandbox.write_file("kept", "x")
    await sandbox.destroy()
    with pytest.raises(SandboxNotFoundError):
        await sandbox.info()
    assert not await sandbox.exists("kept")
    second = await sandbox.info()
    assert first.generation == 1
    assert second.generation > first.generation
