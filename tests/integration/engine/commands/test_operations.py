import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from atoll.engine.commands import operations
from atoll.engine.commands.operations import Operations, exec_header
from atoll.engine.link import link
from atoll.engine.link.link import Endpoint, LinkError, SilenceError, error_of
from atoll.errors import CommandExecutionError, OperationNotFoundError, ResourceBusyError
from atoll.runtime.base import ContainerSpec
from atoll.wire.frames import Kind
from atoll.wire.process import ExecRequest
from integration.engine.scripted import Peer, ScriptedRuntime


@pytest.fixture
def runtime() -> ScriptedRuntime:
    runtime = ScriptedRuntime()
    runtime.running["r"] = ContainerSpec(
        host_ref="r", generation=1, identity="i", hostname="h", rootfs=Path(), run_dir=Path(),
        netns=None,        id_base=0, id_count=0, memory=0, cpu=0, pids=0,
    )  # fmt: skip
    return runtime


@pytest.fixture
def running(runtime: ScriptedRuntime) -> Operations:
    return Operations(Endpoint(runtime, Path(), "r", 1), orphan_grace=0.05)


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "ATTACH_GRACE", 0.05)


def hanging(controls: list[tuple[str, list[int]]]) -> dict[str, Any]:
    async def exec(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.STARTED, {"pid": 1})
        await asyncio.sleep(30)

    async def control(peer: Peer, header: dict[str, Any]) -> None:
        kinds: list[int] = []
        while not kinds or kinds[-1] != Kind.END:
            kinds.append((await peer.next()).kind)
        controls.append((header["id"], kinds))
        await peer.send(Kind.REPLY, {})

    return {"exec": exec, "attach": exec, "control": control}


def header(id: str = "op", **fields: Any) -> dict[str, Any]:
    return {"op": "exec", "id": id, "command": ["x"], **fields}


async def start_and_leave(running: Operations, **fields: Any) -> None:
    async with running.run(header(**fields)) as frames:
        await anext(frames)


async def test_a_command_whose_caller_stays_away_is_cancelled_after_the_grace(
    runtime: ScriptedRuntime, running: Operations
) -> None:
    controls: list[tuple[str, list[int]]] = []
    runtime.scripts = hanging(controls)
    await start_and_leave(running)
    assert running.waiting
    await asyncio.sleep(0.02)
    assert controls == []
    await asyncio.sleep(0.15)
    assert controls == [("op", [Kind.CANCEL, Kind.END])]
    assert not running.waiting


async def test_a_background_process_needs_nobody_who_looks_at_it(
    runtime: ScriptedRuntime, running: Operations
) -> None:
    async def listing(peer: Peer, header: dict[str, Any]) -> None:
        entry = {"id": "op", "running": True, "detach": True}
        await peer.send(Kind.REPLY, {"operations": [entry]})

    controls: list[tuple[str, list[int]]] = []
    runtime.scripts = {**hanging(controls), "operations": listing}
    await start_and_leave(running)
    await asyncio.sleep(0.15)
    assert controls == []
    assert not running.waiting


async def test_a_caller_who_attaches_again_keeps_the_command(
    runtime: ScriptedRuntime, running: Operations
) -> None:
    controls: list[tuple[str, list[int]]] = []
    runtime.scripts = hanging(controls)
    await start_and_leave(running)
    async with running.run({"op": "attach", "id": "op"}) as frames:
        await anext(frames)
        await asyncio.sleep(0.15)
        assert controls == []
    assert running.waiting
    running.close()


async def test_one_of_two_viewers_may_leave(runtime: ScriptedRuntime, running: Operations) -> None:
    controls: list[tuple[str, list[int]]] = []
    runtime.scripts = hanging(controls)
    async with running.run(header()) as frames:
        await anext(frames)
        async with running.run({"op": "attach", "id": "op"}):
            pass
        assert not running.waiting
    running.close()


async def test_a_caller_without_an_id_leaves_the_cancel_to_the_agent(
    runtime: ScriptedRuntime, running: Operations
) -> None:
    runtime.scripts = hanging([])
    await start_and_leave(running, cancel_on_drop=True)
    assert not running.waiting


async def test_a_command_that_ended_is_not_waited_for(
    runtime: ScriptedRuntime, running: Operations
) -> None:
    async with running.run(header()) as frames:
        assert [frame.kind async for frame in frames][-1] == Kind.EXITED
    assert not running.waiting


async def test_an_engine_that_stops_cancels_nothing(
    runtime: ScriptedRuntime, running: Operations
) -> None:
    controls: list[tuple[str, list[int]]] = []
    runtime.scripts = hanging(controls)
    await start_and_leave(running)
    running.close()
    await start_and_leave(running, id="late")
    await asyncio.sleep(0.15)
    assert controls == []


async def test_orphans_of_an_earlier_engine_get_their_grace(
    runtime: ScriptedRuntime, running: Operations
) -> None:
    controls: list[tuple[str, list[int]]] = []
    runtime.scripts = hanging(controls)

    async def listing(peer: Peer, header: dict[str, Any]) -> None:
        known = [
            {"id": "orphan", "running": True},
            {"id": "ended", "running": False},
            {"id": "process", "running": True, "detach": True},
        ]
        await peer.send(Kind.REPLY, {"operations": known})

    runtime.scripts["operations"] = listing
    await running.find_orphans()
    await asyncio.sleep(0.2)
    assert controls == [("orphan", [Kind.CANCEL, Kind.END])]


async def test_a_malformed_list_of_operations_is_a_fault_of_the_agent(
    runtime: ScriptedRuntime, running: Operations
) -> None:
    async def listing(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.REPLY, {"operations": 7})

    runtime.scripts["operations"] = listing
    with pytest.raises(LinkError):
        await running.find_orphans()


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_stdin_is_fed_while_output_is_read(
    runtime: ScriptedRuntime, running: Operations
) -> None:
    async def cat(peer: Peer, header: dict[str, Any]) -> None:
        got = b""
        while (frame := await peer.next()).kind == Kind.STDIN:
            got += frame.payload
        await peer.send(Kind.EXITED, {"exit_code": len(got)})

    runtime.scripts["exec"] = cat
    async with running.run(header(), chunks(b"a" * 100_000, b"b")) as frames:
        last = [frame async for frame in frames][-1]
    assert json.loads(last.payload)["exit_code"] == 100_001


async def test_a_known_command_is_not_fed_twice(
    runtime: ScriptedRuntime, running: Operations
) -> None:
    fed: list[int] = []

    async def watch(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.STARTED, {"pid": 1})
        while True:
            fed.append((await peer.next()).kind)

    runtime.scripts["exec"] = watch
    for _ in range(2):
        async with running.run(header(), chunks(b"x")) as frames:
            await anext(frames)
            await asyncio.sleep(0.02)
    running.close()
    assert fed == [Kind.STDIN, Kind.STDIN_CLOSE]


async def test_interactive_stdin_reaches_the_command(
    runtime: ScriptedRuntime, running: Operations
) -> None:
    controls: list[tuple[str, list[int]]] = []
    runtime.scripts = hanging(controls)
    await running.feed("op", chunks(b"x", b"y"), close=False)
    await running.feed("op", chunks(), close=True)
    assert controls == [
        ("op", [Kind.STDIN, Kind.STDIN, Kind.END]),
        ("op", [Kind.STDIN_CLOSE, Kind.END]),
    ]


async def test_control_of_an_unknown_operation_is_a_typed_error(
    runtime: ScriptedRuntime, running: Operations
) -> None:
    async def unknown(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.ERROR, OperationNotFoundError().to_wire())

    runtime.scripts["control"] = unknown
    with pytest.raises(OperationNotFoundError):
        await running.control("op", [(Kind.CANCEL, b"")])
    with pytest.raises(OperationNotFoundError):
        await running.feed("op", chunks(b"x" * 1_000_000), close=True)


async def test_an_agent_that_answers_nobody_is_not_waited_for(
    runtime: ScriptedRuntime, running: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(peer: Peer, header: dict[str, Any]) -> None:
        await asyncio.sleep(30)

    runtime.scripts |= {"control": silent, "operations": silent}
    monkeypatch.setattr(link, "ASK_AFTER", 0.01)
    monkeypatch.setattr(Endpoint.call, "__defaults__", (0.05,))
    async with asyncio.timeout(5):
        with pytest.raises(SilenceError):
            await running.control("op", [(Kind.CANCEL, b"")])
        with pytest.raises(SilenceError):
            await running.feed("op", chunks(b"x"), close=True)


async def test_a_command_that_does_not_read_its_input_may_take_any_time_for_it(
    runtime: ScriptedRuntime, running: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def slow(peer: Peer, header: dict[str, Any]) -> None:
        await asked.wait()
        await peer.send(Kind.REPLY, {})

    async def listed(peer: Peer, header: dict[str, Any]) -> None:
        asked.set()
        await peer.send(Kind.REPLY, {"operations": []})

    runtime.scripts |= {"control": slow, "operations": listed}
    monkeypatch.setattr(link, "ASK_AFTER", 0.01)
    async with asyncio.timeout(5):
        await running.feed("op", chunks(b"x"), close=True)


def test_buffered_commands_are_cut_by_the_agent() -> None:
    buffered = exec_header(
        ExecRequest(command="x", buffered=True), "op", session=None, cancel_on_drop=False
    )
    assert buffered["output_limit"] == 32 << 20
    streamed = exec_header(
        ExecRequest(command="x", timeout_ms=None), "op", session="s", cancel_on_drop=True
    )
    assert (streamed["output_limit"], streamed["timeout"]) == (None, None)


@pytest.mark.parametrize("first", [b"", ResourceBusyError().to_wire()])
@pytest.mark.parametrize("ended", [True, False])
async def test_input_for_a_command_that_is_just_ending_is_no_error(
    runtime: ScriptedRuntime, running: Operations, first: Any, ended: bool
) -> None:
    answers = iter([first, {"running": not ended}])

    async def control(peer: Peer, header: dict[str, Any]) -> None:
        if answer := next(answers):
            await peer.send(Kind.ERROR if "code" in answer else Kind.REPLY, answer)

    runtime.scripts["control"] = control
    if ended:
        await running.feed("op", chunks(b"x"), close=True)
    else:
        with pytest.raises((LinkError, ResourceBusyError)):
            await running.feed("op", chunks(b"x"), close=True)


async def killed(peer: Peer, header: dict[str, Any]) -> None:
    await peer.send(Kind.STARTED, {"pid": 1})


async def test_the_reason_of_a_broken_connection_is_asked_for(
    runtime: ScriptedRuntime, running: Operations
) -> None:
    """Root inside may kill a supervisor, which held the only connection."""

    async def attach(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.ERROR, CommandExecutionError("its supervisor was killed").to_wire())

    runtime.scripts = {"exec": killed, "attach": attach}
    async with running.run(header()) as frames:
        *_, last = [frame async for frame in frames]
    with pytest.raises(CommandExecutionError, match="supervisor was killed"):
        raise error_of(last)


async def test_an_agent_that_knows_no_reason_broke_the_connection(
    runtime: ScriptedRuntime, running: Operations
) -> None:
    async def attach(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.ERROR, OperationNotFoundError().to_wire())

    runtime.scripts = {"exec": killed, "attach": attach}
    with pytest.raises(LinkError):
        async with running.run(header()) as frames:
            [frame async for frame in frames]


async def test_an_agent_that_does_not_keep_a_time_limit_is_not_waited_for(
    runtime: ScriptedRuntime, running: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "LATE", 0.05)
    monkeypatch.setattr(operations, "OUTCOME", 0.05)
    runtime.scripts = hanging([])
    with pytest.raises(LinkError, match="did not end the command"):
        async with running.run(header(timeout=0.05)) as frames:
            [frame async for frame in frames]
