"""Starts that go wrong, callers that leave, agents that lie: with scripted agents."""

import asyncio
import json
import sqlite3
from typing import Any

import pytest

from atoll.engine.engine import Engine
from atoll.engine.processes import background as service
from atoll.engine.processes.records import ProcessRecord, Status
from atoll.errors import (
    ContainerNotReadyError,
    NoSpaceError,
    OperationInterruptedError,
    OperationNotFoundError,
    ProcessAlreadyExistsError,
    ProcessNotFoundError,
    SandboxError,
    ValidationFailedError,
)
from atoll.settings import LifecycleSettings
from atoll.wire.frames import Kind
from atoll.wire.process import LogsQuery, StartProcessRequest, WaitForPort
from integration.engine.conftest import Opener
from integration.engine.scripted import Peer, World

OWNER = ("N", "box")


class Agent:
    """Runs processes that end when the test says so."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.exits: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self.signals: list[dict[str, Any]] = []

    async def exec(self, peer: Peer, header: dict[str, Any]) -> None:
        self.started.append(header["id"])
        self.exits[header["id"]] = asyncio.get_running_loop().create_future()
        await self.attach(peer, header)

    async def attach(self, peer: Peer, header: dict[str, Any]) -> None:
        found = self.exits.get(header["id"])
        if found is None:
            await peer.send(Kind.ERROR, OperationNotFoundError().to_wire())
            return
        await peer.send(Kind.STARTED, {"pid": len(self.started)})
        await peer.send(Kind.EXITED, await asyncio.shield(found))

    async def control(self, peer: Peer, header: dict[str, Any]) -> None:
        while (frame := await peer.next()).kind != Kind.END:
            wanted = json.loads(frame.payload)
            self.signals.append(wanted)
            self.end(header["id"], exit_code=143, cancelled=True, reason="kill")
        await peer.send(Kind.REPLY, {})

    def end(self, uid: str, **exit: Any) -> None:
        self.exits[uid].set_result({"exit_code": 0} | exit)


@pytest.fixture
def agent(world: World) -> Agent:
    found = Agent()
    world.runtime.scripts |= {
        "exec": found.exec, "attach": found.attach, "control": found.control,
    }  # fmt: skip
    return found


async def start(engine: Engine, key: str | None = None, **fields: Any) -> ProcessRecord:
    request = StartProcessRequest(**{"command": "x"} | fields)
    return await engine.processes.start(engine.sandbox(*OWNER), request, key)


async def ended(engine: Engine, id: str) -> ProcessRecord:
    process = await engine.processes.get(engine.sandbox(*OWNER), id)
    assert await process.wait(5)
    return process.record


async def test_an_end_is_stored_once_and_told(engine: Engine, agent: Agent) -> None:
    record = await start(engine)
    assert (record.status, record.pid) == (Status.RUNNING, 1)
    agent.end(record.uid, exit_code=3, duration=0.0)
    after = await ended(engine, record.id)
    assert (after.status, after.exit_code) == (Status.FAILED, 3)
    assert await engine.processes.table.of(OWNER) == [after]


async def test_fifty_starts_of_one_id_run_it_once(engine: Engine, agent: Agent) -> None:
    starts = [start(engine, process_id="p") for _ in range(50)]
    found = await asyncio.gather(*starts, return_exceptions=True)
    assert sum(isinstance(one, ProcessRecord) for one in found) == 1
    assert sum(isinstance(one, ProcessAlreadyExistsError) for one in found) == 49
    assert len(agent.started) == 1


async def test_one_call_sent_many_times_starts_one_process(engine: Engine, agent: Agent) -> None:
    found = await asyncio.gather(*(start(engine, "key") for _ in range(10)))
    assert {record.uid for record in found} == set(agent.started)
    agent.end(found[0].uid)
    await ended(engine, found[0].id)
    assert (await start(engine, "key")).uid == found[0].uid, "also after its end"


async def test_a_caller_who_leaves_does_not_leave_half_a_start(
    engine: Engine, agent: Agent, world: World
) -> None:
    world.runtime.delay = 0.2
    call = asyncio.create_task(start(engine, "key"))
    await asyncio.sleep(0.05)
    call.cancel()
    record = await start(engine, "key")
    assert agent.started == [record.uid]
    assert record.status is Status.RUNNING


async def test_a_refused_start_is_failed_with_its_reason(engine: Engine, world: World) -> None:
    async def refuse(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.HEARTBEAT)
        await peer.send(Kind.ERROR, NoSpaceError("full").to_wire())

    world.runtime.scripts["exec"] = refuse
    with pytest.raises(NoSpaceError):
        await start(engine, process_id="p")
    record = await ended(engine, "p")
    assert (record.status, record.reason, record.exit_code) == (Status.FAILED, "full", None)
    with pytest.raises(NoSpaceError):
        await start(engine, process_id="p")


async def test_a_start_whose_answer_is_lost_is_found_again(
    engine: Engine, world: World, agent: Agent
) -> None:
    """The process runs: its record must not say otherwise, and the caller must hear an error."""

    async def hang_up(peer: Peer, header: dict[str, Any]) -> None:
        agent.started.append(header["id"])
        agent.exits[header["id"]] = asyncio.get_running_loop().create_future()

    world.runtime.scripts["exec"] = hang_up
    with pytest.raises(OperationInterruptedError):
        await start(engine, process_id="p")
    process = await engine.processes.get(engine.sandbox(*OWNER), "p")
    for _ in range(300):
        if process.record.status is Status.RUNNING:
            break
        await asyncio.sleep(0.01)
    assert process.record.pid == 1
    agent.end(agent.started[0], exit_code=5)
    assert (await ended(engine, "p")).exit_code == 5


async def test_a_start_that_never_reached_the_agent_is_forgotten(
    engine: Engine, world: World, agent: Agent
) -> None:
    """So that the same call, sent again, runs it."""

    async def drop(peer: Peer, header: dict[str, Any]) -> None:
        world.runtime.scripts["exec"] = agent.exec

    world.runtime.scripts["exec"] = drop
    with pytest.raises(OperationInterruptedError):
        await start(engine, "key", process_id="p")
    for _ in range(300):
        if not await engine.processes.table.of(OWNER):
            break
        await asyncio.sleep(0.01)
    assert (await start(engine, "key", process_id="p")).status is Status.RUNNING


async def test_a_broken_watch_is_taken_up_again(engine: Engine, world: World, agent: Agent) -> None:
    async def cut(peer: Peer, header: dict[str, Any]) -> None:
        agent.exits[header["id"]] = asyncio.get_running_loop().create_future()
        await peer.send(Kind.STARTED, {"pid": 3})
        await peer.raw(b"\xff" * 10)

    world.runtime.scripts["exec"] = cut
    record = await start(engine)
    agent.end(record.uid, exit_code=1)
    assert (await ended(engine, record.id)).exit_code == 1


async def test_a_watch_that_is_taken_up_while_the_sandbox_stops_is_no_error_of_its_process(
    engine: Engine, world: World, agent: Agent
) -> None:
    asked = asyncio.Event()

    async def cut(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.STARTED, {"pid": 3})

    async def stopping(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.ERROR, ContainerNotReadyError("the sandbox is stopping").to_wire())
        asked.set()

    world.runtime.scripts |= {"exec": cut, "attach": stopping}
    record = await start(engine)
    await asyncio.wait_for(asked.wait(), 20)
    await engine.sandbox(*OWNER).stop()
    told = await ended(engine, record.id)
    assert (told.status, told.reason) == (Status.KILLED, "sleep")


async def test_an_agent_that_forgot_a_process_makes_its_outcome_unknown(
    engine: Engine, world: World, agent: Agent
) -> None:
    async def forget(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.STARTED, {"pid": 3})

    world.runtime.scripts["exec"] = forget
    record = await ended(engine, (await start(engine)).id)
    assert (record.status, record.exit_code) == (Status.ERROR, None)
    assert record.reason == "its outcome is not known"


async def test_a_container_that_dies_takes_its_processes_along(
    engine: Engine, world: World, agent: Agent
) -> None:
    record = await start(engine)
    world.runtime.kill(next(iter(world.runtime.running)))
    after = await ended(engine, record.id)
    assert (after.status, after.reason) == (Status.KILLED, "its sandbox ended")


async def test_kill_asks_for_the_signal_and_the_grace(engine: Engine, agent: Agent) -> None:
    sandbox, record = engine.sandbox(*OWNER), await start(engine)
    after = await engine.processes.kill(sandbox, record.id, "int")
    assert agent.signals == [{"signal": "SIGINT", "tree": True, "grace": 5.0}]
    assert (after.status, after.reason) == (Status.KILLED, "kill")
    await engine.processes.kill(sandbox, record.id, "KILL")
    assert len(agent.signals) == 1
    with pytest.raises(ValidationFailedError):
        await engine.processes.kill(sandbox, record.id, "SIGNONE")
    with pytest.raises(ProcessNotFoundError):
        await engine.processes.kill(sandbox, "none", "TERM")


async def test_what_cannot_be_killed_is_an_error(
    engine: Engine, world: World, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ignore(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.REPLY, {})

    monkeypatch.setattr(service, "UNKILLABLE", 0.05)
    world.runtime.scripts["control"] = ignore
    record = await start(engine)
    with pytest.raises(SandboxError, match="could not be killed"):
        await engine.processes.kill(engine.sandbox(*OWNER), record.id, "SIGKILL")


async def test_only_keep_awake_holds_off_sleep(opener: Opener, agent: Agent) -> None:
    async with opener(LifecycleSettings(sleep_after=0.2)) as engine:
        kept = await start(engine, keep_awake=True)
        await asyncio.sleep(1.5)
        assert (await engine.info(*OWNER)).state == "running"
        agent.end(kept.uid)
        for _ in range(400):
            if (await engine.info(*OWNER)).state == "stopped":
                break
            await asyncio.sleep(0.01)
        assert (await engine.info(*OWNER)).state == "stopped"


async def test_the_next_engine_watches_what_it_finds(
    opener: Opener, agent: Agent, world: World
) -> None:
    async with opener() as first:
        record = await start(first)
    agent.end(record.uid, exit_code=6)
    async with opener() as second:
        assert (await ended(second, record.id)).exit_code == 6
        assert agent.started == [record.uid]


async def test_waiting_for_a_port_has_a_limit_and_ends_with_the_process(
    engine: Engine, agent: Agent
) -> None:
    sandbox, record = engine.sandbox(*OWNER), await start(engine)
    wanted = WaitForPort(port=1, wait_ms=50, interval_ms=10)
    assert not (await engine.processes.wait_for_port(sandbox, record.id, wanted)).ready
    agent.end(record.uid, exit_code=2)
    await ended(engine, record.id)
    with pytest.raises(SandboxError) as caught:
        await engine.processes.wait_for_port(sandbox, record.id, wanted)
    assert caught.value.context["exit_code"] == 2


async def test_finished_processes_are_cleaned_up_and_running_ones_are_not(
    engine: Engine, agent: Agent, world: World
) -> None:
    running, over = await start(engine), await start(engine, auto_cleanup=False)
    agent.end(over.uid)
    await ended(engine, over.id)
    await engine.processes.tidy()
    assert len(await engine.processes.table.of(OWNER)) == 2
    assert await engine.processes.clean(engine.sandbox(*OWNER)) == 1
    assert [r.uid for r in await engine.processes.table.of(OWNER)] == [running.uid]
    assert [path.name for path in world.state_dir.glob("logs/*/*")] == [running.uid]


async def test_logs_of_destroyed_sandboxes_are_swept(engine: Engine, world: World) -> None:
    (world.state_dir / "logs" / "orphan").mkdir(parents=True)
    await engine.processes.sweep(set())
    assert list((world.state_dir / "logs").iterdir()) == []


async def test_a_negative_offset_is_refused(engine: Engine, agent: Agent) -> None:
    record = await start(engine)
    query = LogsQuery(from_offset=-1)
    with pytest.raises(ValidationFailedError):
        async with engine.processes.stream(engine.sandbox(*OWNER), record.id, query):
            pass


async def test_an_end_that_could_not_be_stored_is_stored_later(
    engine: Engine, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = await start(engine)
    put, failures = engine.processes.table.put, [sqlite3.OperationalError("disk is full")]

    async def failing(record: ProcessRecord) -> None:
        if failures:
            raise failures.pop()
        await put(record)

    monkeypatch.setattr(engine.processes.table, "put", failing)
    agent.end(record.uid, exit_code=4)
    after = await ended(engine, record.id)
    assert after.exit_code == 4
    assert await engine.processes.table.get(OWNER, record.id) == after


@pytest.mark.parametrize("delay", [0.0, 0.001, 0.003, 0.01, 0.03])
async def test_a_sandbox_that_goes_during_a_start_leaves_nothing(
    engine: Engine, agent: Agent, world: World, delay: float
) -> None:
    sandbox = engine.sandbox(*OWNER)
    async with sandbox.use():
        pass
    for end in (sandbox.stop, sandbox.destroy):
        call = asyncio.create_task(start(engine))
        await asyncio.sleep(delay)
        await end()
        await asyncio.gather(call, return_exceptions=True)
    await sandbox.destroy()
    await asyncio.sleep(0.05)
    assert await engine.processes.table.of(OWNER) == []
    assert [*world.state_dir.glob("logs/*/*")] == []
    assert engine.processes.watches.owners() == []


async def test_a_start_that_is_never_answered_is_not_waited_for(
    engine: Engine, world: World, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root inside may stop whoever would answer; the process stays known, and is looked after."""

    async def silent(peer: Peer, header: dict[str, Any]) -> None:
        await asyncio.sleep(5)

    world.runtime.scripts["exec"] = silent
    monkeypatch.setattr(service, "START", 0.1)
    with pytest.raises(OperationInterruptedError) as caught:
        await start(engine, process_id="p")
    assert "no answer within" in caught.value.context["detail"]
