import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from atoll.errors import ContainerUnavailableError
from atoll.network.gateway import keeper
from atoll.network.gateway.keeper import Keeper
from atoll.network.gateway.listening import Ports
from atoll.network.gateway.protocol import Call, HandlerAnswer, Put, Unanswered
from atoll.network.policy import SandboxPolicy


async def no_handler(_: Call) -> HandlerAnswer:
    return Unanswered(reason="none")


def put(host_ref: str, last: int) -> Put:
    address = (f"127.0.2.{last}",)
    return Put(policy=SandboxPolicy(key="a/b", host_ref=host_ref, addresses=address), log=host_ref)


def made(folder: Path, moved: list[Ports], bound: list[int] | None = None) -> Keeper:
    names, bounded = ("127.0.0.1",), bound if bound is not None else []
    return Keeper(
        folder / "egress", names, no_handler, moved.append, uid=None, bound=bounded.append
    )


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[tuple[Keeper, list[Ports]]]:
    moved: list[Ports] = []
    one = made(tmp_path, moved)
    await one.open()
    yield one, moved
    await one.close(stop=True)


async def test_a_gateway_that_is_killed_is_started_again_with_all_policies(
    kept: tuple[Keeper, list[Ports]],
) -> None:
    one, moved = kept
    await one.put(put("r-1", 1))
    await one.put(put("r-2", 2))
    before = await one.status()
    os.kill(before.pid, signal.SIGKILL)
    async with asyncio.timeout(30):
        after = before
        while after.pid == before.pid:
            await asyncio.sleep(0.01)
            with suppress(ContainerUnavailableError):
                after = await one.status()
    assert set(after.sandboxes) == {"r-1", "r-2"}
    assert moved[0] == moved[-1]


async def test_a_policy_waits_for_the_gateway_that_takes_over(
    kept: tuple[Keeper, list[Ports]],
) -> None:
    """A gateway may end at any time; sandboxes that start meanwhile are late, not refused."""
    one, _ = kept
    before = await one.status()
    os.kill(before.pid, signal.SIGKILL)
    await one.put(put("r-1", 1))
    after = await one.status()
    assert after.pid != before.pid
    assert set(after.sandboxes) == {"r-1"}


async def test_a_policy_that_was_refused_does_not_stop_the_next_gateway(
    kept: tuple[Keeper, list[Ports]],
) -> None:
    one, _ = kept
    await one.put(put("r-1", 1))
    with pytest.raises(ValueError, match="another sandbox"):
        await one.put(put("r-2", 1))
    os.kill((await one.status()).pid, signal.SIGKILL)
    await one.put(put("r-3", 3))
    assert set((await one.status()).sandboxes) == {"r-1", "r-3"}


async def test_a_gateway_that_hangs_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lives, and so do its listeners: nobody but the engine would notice."""
    monkeypatch.setattr(keeper, "LOOK", 0.01)
    monkeypatch.setattr(keeper, "HANG", 2.0)
    one = made(tmp_path, [])
    await one.open()
    await one.put(put("r-1", 1))
    before = await one.status()
    os.kill(before.pid, signal.SIGSTOP)
    async with asyncio.timeout(30):
        while Path(f"/proc/{before.pid}").exists():
            await asyncio.sleep(0.01)
    monkeypatch.setattr(keeper, "HANG", 60.0)
    await one.put(put("r-2", 2))
    assert set((await one.status()).sandboxes) == {"r-1", "r-2"}
    await one.close(stop=True)


async def test_a_gateway_that_hangs_does_not_keep_the_engine_from_stopping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = made(tmp_path, [])
    await one.open()
    monkeypatch.setattr(keeper, "STOP_TIMEOUT", 0.1)
    os.kill(one.pid, signal.SIGSTOP)
    await one.close(stop=True)
    assert not Path(f"/proc/{one.pid}").exists()


async def test_a_start_that_is_cut_short_leaves_no_process(tmp_path: Path) -> None:
    """An engine that ends as soon as it began has nobody who would stop its gateway."""
    one = made(tmp_path, [])
    opening = asyncio.create_task(one.open())
    state = tmp_path / "egress" / "gateway.json"
    while not state.exists():
        await asyncio.sleep(0.001)
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    pid = msgspec.json.decode(state.read_bytes())["pid"]
    assert not Path(f"/proc/{pid}").exists()
    await one.close(stop=True)


async def test_an_engine_that_comes_back_finds_the_gateway_and_what_it_knows(
    tmp_path: Path,
) -> None:
    moved: list[Ports] = []
    first = made(tmp_path, moved)
    await first.open()
    await first.put(put("r-1", 1))
    await first.put(put("r-2", 2))
    pid = (await first.status()).pid
    await first.close(stop=False)
    second = made(tmp_path, moved)
    await second.open()
    try:
        assert (await second.status()).pid == pid
        assert moved[0] == moved[1]
        await second.put(put("r-2", 2))
        await second.settle()
        assert set((await second.status()).sandboxes) == {"r-2"}
    finally:
        await second.close(stop=True)
    assert not Path(f"/proc/{pid}").exists()


async def test_the_gateway_that_is_found_is_bound_too(tmp_path: Path) -> None:
    """By what the settings say now; a pid in the folder may be anybody's by then."""
    bound: list[int] = []
    first = made(tmp_path, [], bound)
    await first.open()
    pid = first.pid
    await first.close(stop=False)
    state = tmp_path / "egress" / "gateway.json"
    noted = state.read_bytes()
    state.write_bytes(msgspec.json.encode(msgspec.json.decode(noted) | {"pid": os.getpid()}))
    second = made(tmp_path, [], bound)
    await second.open()
    await second.close(stop=False)
    state.write_bytes(noted)
    third = made(tmp_path, [], bound)
    await third.open()
    await third.close(stop=True)
    assert bound == [pid, pid]


async def test_a_gateway_of_another_version_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[Ports] = []
    first = made(tmp_path, moved)
    await first.open()
    pid = (await first.status()).pid
    await first.close(stop=False)
    with monkeypatch.context() as patch:
        patch.setattr(keeper, "VERSION", 99)
        second = made(tmp_path, moved)
        await second.open()
    try:
        assert (await second.status()).pid != pid
        assert moved[0] == moved[1]
    finally:
        await second.close(stop=True)


async def test_two_sandboxes_never_have_one_address(kept: tuple[Keeper, list[Ports]]) -> None:
    one, _ = kept
    await one.put(put("r-1", 1))
    with pytest.raises(ValueError, match="another sandbox"):
        await one.put(put("r-2", 1))
    await one.remove("r-1")
    await one.put(put("r-2", 1))
