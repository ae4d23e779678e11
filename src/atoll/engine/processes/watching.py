"""How the end of a process is learnt: once, from whoever knows it.

While the engine runs, from a connection that hears of nothing else. After a restart, from the
agent, which remembers outcomes for ten minutes, or from the log, whose last frame is the outcome
and which nobody can lose. Where neither knows it the record says that, with a reason.

An agent that takes no descriptors cannot write the log: there that connection carries the output
too, and what it brings is written before anything else is made of it.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import structlog

from atoll.engine.link.link import Endpoint, Link, LinkError, error_of
from atoll.engine.processes import records as rules
from atoll.engine.processes.copying import LogCopy
from atoll.engine.processes.logs import ProcessLogs, exit_of
from atoll.engine.processes.records import ProcessRecord, Status
from atoll.engine.processes.streams import Process
from atoll.engine.processes.table import ProcessTable
from atoll.engine.store import record as sandboxes
from atoll.errors import ContainerNotReadyError, OperationNotFoundError, SandboxError
from atoll.host.tasks import Tasks
from atoll.wire.frames import Frame, Kind
from atoll.wire.records import Exit, Started

if TYPE_CHECKING:
    from atoll.engine.sandbox import Sandbox

log = structlog.get_logger(__name__)

T = TypeVar("T")
Owner = tuple[str, str]

_AGAIN = 0.2
_AGAIN_MOST = 5.0
_LAST_WORDS = 2.0
"""Seconds at most to read what an agent sent before it ended: the buffers of its connections."""

_LONGEST = 1e9
"""Seconds of run time that an agent is believed."""


class Watches:
    """The processes whose end this engine waits for.

    Args:
        table: where ends are stored.
        logs: where they are found too.
        log_limit: bytes kept of a log that is written here.
    """

    def __init__(self, table: ProcessTable, logs: ProcessLogs, log_limit: int) -> None:
        self._table = table
        self._logs = logs
        self._log_limit = log_limit
        self._live: dict[Owner, dict[str, Process]] = {}
        self._tasks = Tasks()

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run *work* until it is done or the engine closes."""
        task = self._tasks.begin(work)
        task.add_done_callback(_heard)
        return task

    async def close(self) -> None:
        """Forget everything: processes go on, the next engine finds them."""
        await self._tasks.close()

    def add(self, record: ProcessRecord) -> Process:
        """Begin to wait for the end of a process."""
        process = Process(record)
        self._live.setdefault(record.owner, {})[record.uid] = process
        return process

    def find(self, record: ProcessRecord) -> Process | None:
        """Return the process of a record, if its end is waited for."""
        return self._live.get(record.owner, {}).get(record.uid)

    def of(self, owner: Owner) -> list[Process]:
        """Return those of one sandbox."""
        return list(self._live.get(owner, {}).values())

    def owners(self) -> list[Owner]:
        """Return the sandboxes that have some."""
        return list(self._live)

    def keep_awake(self, owner: Owner) -> bool:
        """Whether one of them holds off sleep."""
        return any(process.record.request.keep_awake for process in self.of(owner))

    def drop(self, owner: Owner) -> None:
        """Forget those of a sandbox that is destroyed."""
        for process in self._live.pop(owner, {}).values():
            process.ending = True
            at = sandboxes.now()
            process.record = rules.lost(process.record, Status.KILLED, rules.DESTROYED, at)
            process.done.set()

    async def release(self, owner: Owner) -> None:
        """Wait for none of a sandbox any more: another engine stored what became of them."""
        known = {record.uid: record for record in await self._table.of(owner)}
        for process in self._live.pop(owner, {}).values():
            process.ending = True
            process.record = known.get(process.record.uid, process.record)
            process.done.set()

    async def started(self, process: Process, frame: Frame) -> None:
        """Store that the process runs."""
        pid = msgspec.json.decode(frame.payload, type=Started).pid
        if process.record.status is Status.STARTING:
            process.record = msgspec.structs.replace(
                process.record, status=Status.RUNNING, pid=pid, start_time=sandboxes.now()
            )
            await self._table.put(process.record)

    def watch(
        self,
        sandbox: "Sandbox",
        endpoint: Endpoint,
        process: Process,
        link: Link | None,
        first: Frame | None = None,
    ) -> None:
        """Wait for the end, on *link*, which has brought *first*, or on a new connection."""
        self.spawn(self._watch(sandbox, endpoint, process, link, first))

    async def _watch(
        self,
        sandbox: "Sandbox",
        endpoint: Endpoint,
        process: Process,
        link: Link | None,
        first: Frame | None,
    ) -> None:
        if endpoint.runtime.takes_files:
            await self._until_settled(sandbox, endpoint, process, link)
            return
        async with LogCopy(self._logs.reopen(process.record), self._log_limit) as process.copy:
            if first:
                await process.copy.append(first)
            await self._until_settled(sandbox, endpoint, process, link)

    async def _until_settled(
        self, sandbox: "Sandbox", endpoint: Endpoint, process: Process, link: Link | None
    ) -> None:
        delay = _AGAIN
        while not process.done.is_set():
            await sandbox.thawed.wait()
            try:
                await self._listen(process, link or await self._attach(endpoint, process))
            except LinkError as error:
                log.info("process watch broke", process=process.record.uid, reason=str(error))
                if await sandbox.check_alive(endpoint) or sandbox.endpoint is not endpoint:
                    return  # `gone` says what became of it
            except Exception as error:  # a full disk, for the store: the agent tells it again
                log.error("process not settled", process=process.record.uid, exc_info=error)
            link = None
            await process.wait(delay)
            delay = min(delay * 2, _AGAIN_MOST)

    async def _attach(self, endpoint: Endpoint, process: Process) -> Link:
        header = {"op": "attach", "id": process.record.uid, "from_offset": 0, "quiet": True}
        if process.copy:
            header |= {"from_offset": process.copy.offset, "quiet": False}
        return await endpoint.open(header)

    async def _listen(self, process: Process, link: Link) -> None:
        async with link, process.listening():
            # No limit of silence: a frozen sandbox says nothing, and a dead one hangs up.
            async for frame in link.frames(silence=None):
                if process.copy:
                    await process.copy.append(frame)
                if frame.kind == Kind.STARTED:
                    await self.started(process, frame)
                elif frame.kind in {Kind.EXITED, Kind.ERROR}:
                    await self._settle(process, frame)

    async def _settle(self, process: Process, frame: Frame) -> None:
        if frame.kind == Kind.EXITED:
            await self._finish(process, _ended(process.record, exit_of(frame)))
            return
        error = error_of(frame)
        if isinstance(error, ContainerNotReadyError) and process.record.status is Status.RUNNING:
            return  # asked again while its sandbox stops: `gone` says what became of it
        if not await self._settle_by_log(process):
            await self.fail(process, error)

    async def settle(self, process: Process) -> None:
        """Store the end that is in the log: who reads it there may know before the agent tells."""
        try:
            await self._settle_by_log(process)
        except SandboxError as error:  # a full disk, for the store: the agent tells it again
            log.info("end not stored yet", process=process.record.uid, reason=str(error))

    async def _settle_by_log(self, process: Process) -> bool:
        try:
            exit = await asyncio.to_thread(self._logs.exit, process.record)
        except SandboxError:
            return False
        if exit:
            await self._finish(process, _ended(process.record, exit))
        return exit is not None

    async def fail(self, process: Process, error: SandboxError) -> None:
        """Store that there is no exit code, and why."""
        record = process.record
        unknown = isinstance(error, OperationNotFoundError)
        if record.status is Status.STARTING and unknown and not self._logs.started(record):
            await self._forget(process)  # nothing ran: the call that asked for it may be repeated
            return
        status = Status.FAILED if record.status is Status.STARTING and not unknown else Status.ERROR
        reason = rules.UNKNOWN if unknown else error.message
        await self._finish(process, rules.lost(record, status, reason, sandboxes.now()))

    async def gone(self, owner: Owner, reason: str) -> None:
        """The sandbox does not run any more: neither does any of its processes."""
        await self._heard_out(owner)
        for record in await self._table.of(owner):
            if record.live:
                process = self.find(record) or self.add(record)
                if not await self._settle_by_log(process):
                    lost = rules.lost(process.record, Status.KILLED, reason, sandboxes.now())
                    await self._finish(process, lost)

    async def _heard_out(self, owner: Owner) -> None:
        """Wait until what ended agents have sent is in the logs; they have hung up by now."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                for process in self.of(owner):
                    if process.copy:
                        await process.silent.wait()

    async def adopt(self, sandbox: "Sandbox", endpoint: Endpoint) -> None:
        """Wait for the processes that an earlier engine started."""
        for record in await self._table.of((sandbox.namespace, sandbox.id)):
            if record.live:
                self.watch(sandbox, endpoint, self.add(record), None)

    async def _finish(self, process: Process, record: ProcessRecord) -> None:
        if process.ending:
            return
        process.ending = True
        try:
            await self._table.put(record)
        except BaseException:
            process.ending = False
            raise
        process.record = record
        self._remove(process)

    async def _forget(self, process: Process) -> None:
        process.ending = True
        await self._table.delete([process.record])
        self._logs.delete(process.record)
        self._remove(process)

    def _remove(self, process: Process) -> None:
        owner = process.record.owner
        found = self._live.get(owner, {})
        found.pop(process.record.uid, None)
        if not found:
            self._live.pop(owner, None)
        process.done.set()


def _ended(record: ProcessRecord, exit: Exit) -> ProcessRecord:
    """Return *record* with its end; the time of it is right also when it is learnt later."""
    at = record.start_time + timedelta(seconds=min(max(0.0, exit.duration), _LONGEST))
    return rules.ended(record, exit, min(at, sandboxes.now()))


def _heard(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()  # its caller, if it still waits, hears of it
