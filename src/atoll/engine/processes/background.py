"""Background processes: started, told of, ended; their records outlive engine, sleep and agent.

A record is in the store before the agent is asked, so nothing ever runs that nobody knows of. Its
`uid` is the agent's operation id: asked twice, it runs once. How its end is learnt: `Watches`.
Output never passes through here: the agent writes logs, or `Watches` does where it takes no
descriptors; `processes.streams` reads them.
"""

import asyncio
import json
import os
import secrets
import signal
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import msgspec
import structlog

from atoll.engine.lifecycle.activity import Use
from atoll.engine.link.link import Endpoint, Link, LinkError, error_of
from atoll.engine.processes import ports
from atoll.engine.processes import records as rules
from atoll.engine.processes.logs import ProcessLogs
from atoll.engine.processes.records import ProcessRecord
from atoll.engine.processes.streams import Process, follow
from atoll.engine.processes.table import ProcessTable
from atoll.engine.processes.watching import Watches
from atoll.engine.store import record as sandboxes
from atoll.errors import (
    ProcessError,
    ProcessExitedBeforeReadyError,
    ProcessNotFoundError,
    SandboxError,
    ValidationFailedError,
    from_os_error,
)
from atoll.settings import MIB, ProcessSettings
from atoll.wire import ids
from atoll.wire import process as wire
from atoll.wire.agent import KILL_GRACE
from atoll.wire.frames import Frame, Kind
from atoll.wire.sandbox import State

if TYPE_CHECKING:
    from atoll.engine.sandbox import Sandbox

log = structlog.get_logger(__name__)

UNKILLABLE = 7.0
"""Seconds after the KILL until a process counts as stuck: the agent gives up after 5."""

START = 15.0
"""Seconds an agent has to say that a process was started, or why not."""

YOUNG = 0.2
"""Seconds after its start during which a reader of a log waits for a process that may be just
ending: who starts ``echo hi`` and asks at once expects ``hi``."""

TAIL = 2_000
"""Bytes of output that come with the error of a process that ended too early."""

_OUTPUT = frozenset({Kind.STDOUT, Kind.STDERR})


class Processes:
    """The background processes of all sandboxes.

    Args:
        table: where records are.
        logs: where output is.
        settings: limits.
    """

    def __init__(self, table: ProcessTable, logs: ProcessLogs, settings: ProcessSettings) -> None:
        self.table = table
        self._logs = logs
        self._settings = settings
        self.watches = Watches(table, logs, settings.log_mib * MIB)
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    # Starting

    async def start(
        self, sandbox: "Sandbox", request: wire.StartProcessRequest, key: str | None
    ) -> ProcessRecord:
        """Start a process; the same *key* again returns the one it started.

        Raises:
            ProcessAlreadyExistsError: a running one has the id.
            IdempotencyConflictError: the key belongs to another request.
            SandboxError: it could not be started; the record says so too.
        """
        if request.process_id is not None:
            ids.check_process_id(request.process_id)
        # A caller who leaves must not leave half a start behind.
        return await asyncio.shield(self.watches.spawn(self._start(sandbox, request, key)))

    async def _start(
        self, sandbox: "Sandbox", request: wire.StartProcessRequest, key: str | None
    ) -> ProcessRecord:
        if known := await self._started_by(sandbox, request, key):
            return known
        async with sandbox.use() as endpoint, self._lock(sandbox):
            if known := await self._started_by(sandbox, request, key):
                return known
            return await self._launch(sandbox, endpoint, request, key)

    def _lock(self, sandbox: "Sandbox") -> asyncio.Lock:
        return self._locks.setdefault((sandbox.namespace, sandbox.id), asyncio.Lock())

    async def _started_by(
        self, sandbox: "Sandbox", request: wire.StartProcessRequest, key: str | None
    ) -> ProcessRecord | None:
        if key is None:
            return None
        found = await self.table.started_by((sandbox.namespace, sandbox.id), key)
        return rules.check_repeated(found, request) if found else None

    async def _launch(
        self,
        sandbox: "Sandbox",
        endpoint: Endpoint,
        request: wire.StartProcessRequest,
        key: str | None,
    ) -> ProcessRecord:
        owner = sandbox.namespace, sandbox.id
        uid = f"proc-{secrets.token_hex(6)}"
        id = request.process_id or uid
        old = await self.table.get(owner, id)
        rules.check_free(old)
        record = ProcessRecord(
            uid=uid,
            namespace=sandbox.namespace,
            sandbox=sandbox.id,
            layer_id=sandbox.record.layer_id if sandbox.record else "",
            generation=endpoint.generation,
            id=id,
            request=request,
            status=wire.ProcessStatus.STARTING,
            start_time=sandboxes.now(),
            key=key,
        )
        await self.table.put(record)
        if old:
            self._logs.delete(old)
        if sandbox.endpoint is not endpoint:  # what ends sandboxes may have looked before the put
            await self.table.delete([record])
            raise LinkError("the sandbox ended before the process was started")
        process = self.watches.add(record)
        await self._run(sandbox, endpoint, process)
        return process.record

    async def _run(self, sandbox: "Sandbox", endpoint: Endpoint, process: Process) -> None:
        """Ask the agent; return when the process runs, and watch it from then on."""
        try:
            async with asyncio.timeout(START):
                link, first = await self._ask(endpoint, process.record)
        except (LinkError, TimeoutError) as error:
            self.watches.watch(sandbox, endpoint, process, None)  # it may run all the same
            reason = str(error) or f"no answer within {START:.0f} s"
            raise LinkError(f"the start of process {process.record.id!r}: {reason}") from error
        except OSError as error:  # the log could not be made: nothing was asked
            failure = from_os_error(error, "the log of the process")
            await self.watches.fail(process, failure)
            raise failure from error
        if first.kind == Kind.ERROR:
            link.close()
            await self.watches.fail(process, error_of(first))
            raise error_of(first)
        await self.watches.started(process, first)
        self.watches.watch(sandbox, endpoint, process, link, first)

    async def _ask(self, endpoint: Endpoint, record: ProcessRecord) -> tuple[Link, Frame]:
        fd = self._logs.create(record)
        try:
            if endpoint.runtime.takes_files:
                asked = rules.header(record, self._settings.log_mib * MIB)
                link = await endpoint.open(asked, [fd])
            else:
                link = await endpoint.open(rules.header(record, None))
        finally:
            os.close(fd)
        try:
            while (first := await anext(link.frames())).kind == Kind.HEARTBEAT:
                pass
        except BaseException:
            link.close()
            raise
        return link, first

    # Telling

    async def get(self, sandbox: "Sandbox", id: str, handle: str | None = None) -> Process:
        """Return the process an id names. Wakes nothing.

        Raises:
            ProcessNotFoundError: none.
            StaleHandleError: not the one of *handle*.
        """
        owner = sandbox.namespace, sandbox.id
        record = await self.table.get(owner, id)
        if record is None:
            raise ProcessNotFoundError(f"no process {id!r}", context={"process": id})
        rules.check_handle(record, handle)
        if record.live and (process := self.watches.find(record)):
            return process
        # It may have ended between the two looks.
        return Process(await self.table.get(owner, id) or record)

    async def listing(self, sandbox: "Sandbox") -> list[ProcessRecord]:
        """Return all processes of a sandbox. Wakes nothing."""
        return await self.table.of((sandbox.namespace, sandbox.id))

    @asynccontextmanager
    async def stream(
        self, sandbox: "Sandbox", id: str, query: wire.LogsQuery
    ) -> AsyncIterator[AsyncIterator[Frame]]:
        """Yield the frames of a log; new output of a process that is followed is activity."""
        process = await self.get(sandbox, id, query.handle)
        if query.from_offset < 0:
            raise ValidationFailedError("fromOffset is negative", context={"field": "fromOffset"})
        if not query.follow:
            await process.wait(rules.rest_of(process.record, YOUNG, sandboxes.now()))
        limit = None if query.limit_ms is None else query.limit_ms / 1000
        with self._logs.open(process.record) as reader:
            found = follow(
                reader,
                process,
                query.from_offset,
                to_end=query.follow,
                limit=limit,
                settle=self.watches.settle,
            )
            async with aclosing(found), aclosing(_active(sandbox, process, found)) as active:
                yield active

    async def wait_for_port(
        self, sandbox: "Sandbox", id: str, wanted: wire.WaitForPort
    ) -> wire.PortAnswer:
        """Wait until the port answers, *wanted.wait_ms* at most.

        Raises:
            ProcessExitedBeforeReadyError: the process ended; with its code and last output.
        """
        ports.check(wanted)
        process = await self.get(sandbox, id, wanted.handle)
        answer = await ports.wait(sandbox, process, wanted)
        if answer is None:
            raise self._too_early(process.record)
        return answer

    def _too_early(self, record: ProcessRecord) -> ProcessExitedBeforeReadyError:
        tail = self._logs.tail(record, TAIL).decode(errors="replace")
        return ProcessExitedBeforeReadyError(
            f"process {record.id!r} ended before it was ready",
            context={
                "process": record.id,
                "exit_code": record.exit_code,
                "signal": record.signal,
                "reason": record.reason,
                "tail": tail,
            },
            suggestion=tail.strip()[-500:] or None,
        )

    # Ending

    async def kill(
        self, sandbox: "Sandbox", id: str, name: str, handle: str | None = None
    ) -> ProcessRecord:
        """End a process and all it started: the signal, `KILL_GRACE`, KILL.

        Nothing happens to one that has ended.

        Raises:
            ProcessError: it could not be killed.
        """
        number = signal_of(name)
        process = await self.get(sandbox, id, handle)
        await self._end(sandbox, process, number)
        return process.record

    async def kill_all(self, sandbox: "Sandbox", name: str) -> int:
        """End all processes of a sandbox; return how many ran."""
        number = signal_of(name)
        running = self.watches.of((sandbox.namespace, sandbox.id))
        await asyncio.gather(*(self._end(sandbox, process, number) for process in running))
        return len(running)

    async def _end(self, sandbox: "Sandbox", process: Process, number: signal.Signals) -> None:
        if process.done.is_set():
            return
        grace = 0.0 if number is signal.SIGKILL else KILL_GRACE
        body = json.dumps({"signal": number.name, "tree": True, "grace": grace}).encode()
        if sandbox.record and sandbox.record.state is State.FROZEN:
            async with sandbox.use():
                pass
        if operations := sandbox.operations:
            # It has ended, or its sandbox does, or the agent is stuck: the wait tells.
            with suppress(LinkError, SandboxError, TimeoutError):
                async with asyncio.timeout(UNKILLABLE):
                    await operations.control(process.record.uid, [(Kind.SIGNAL, body)])
        if not await process.wait(grace + UNKILLABLE):
            raise ProcessError(
                f"process {process.record.id!r} could not be killed",
                context={"process": process.record.id, "pid": process.record.pid},
            )

    async def clean(self, sandbox: "Sandbox") -> int:
        """Forget all finished processes of a sandbox with their logs; return how many."""
        records = await self.listing(sandbox)
        return await self._delete([record for record in records if not record.live])

    async def _delete(self, records: list[ProcessRecord]) -> int:
        await self.table.delete(records)
        for record in records:
            self._logs.delete(record)
        return len(records)

    # What happens to sandboxes

    async def woken(self, sandbox: "Sandbox", endpoint: Endpoint) -> None:
        """Start again what the end of the sandbox ended and what asked for that."""
        records = await self.listing(sandbox)
        again = [self._restart(sandbox, endpoint, one) for one in records if rules.restarts(one)]
        await asyncio.gather(*again)

    async def _restart(self, sandbox: "Sandbox", endpoint: Endpoint, record: ProcessRecord) -> None:
        request = msgspec.structs.replace(record.request, process_id=record.id)
        try:
            await self._launch(sandbox, endpoint, request, record.key)
        except (LinkError, SandboxError) as error:
            log.warning("process not restarted", process=record.id, reason=str(error))

    async def forget(self, owner: tuple[str, str], layer_id: str) -> None:
        """The sandbox is destroyed: nothing of its processes stays."""
        self.watches.drop(owner)
        await self.table.delete(await self.table.of(owner))
        self._logs.delete_all(layer_id)

    # By itself

    async def sweep(self, lives: set[str]) -> None:
        """Remove what belongs to no sandbox.

        Args:
            lives: layers of all sandboxes.
        """
        await self.table.delete_ownerless()
        for layer_id in self._logs.lives() - lives:
            self._logs.delete_all(layer_id)

    async def tidy(self) -> None:
        """Forget finished processes whose time is over, and bound the logs of each sandbox."""
        for owner in await self.table.owners():
            records = await self.table.of(owner)
            keep, count = self._settings.keep_finished, self._settings.keep_count
            await self._delete(rules.overdue(records, sandboxes.now(), keep=keep, count=count))
            await self._shrink(records)

    async def shrink(self) -> None:
        """Bound the logs of every sandbox in which processes run."""
        for owner in self.watches.owners():
            await self._shrink(await self.table.of(owner))

    async def _shrink(self, records: list[ProcessRecord]) -> None:
        ordered = sorted(records, key=rules.age)
        await asyncio.to_thread(self._logs.shrink, ordered, self._settings.logs_mib * MIB)


async def _active(
    sandbox: "Sandbox", process: Process, found: AsyncIterator[Frame]
) -> AsyncGenerator[Frame, None]:
    async for frame in found:
        if frame.kind in _OUTPUT and not process.done.is_set():
            sandbox.activity.note(Use.LOG_OUTPUT)
        yield frame


def signal_of(name: str) -> signal.Signals:
    """Return the signal of a name, with or without SIG.

    Raises:
        ValidationFailedError: there is none.
    """
    upper = name.upper()
    found = signal.Signals.__members__.get(upper if upper.startswith("SIG") else f"SIG{upper}")
    if found is None:
        raise ValidationFailedError(f"there is no signal {name!r}", context={"field": "signal"})
    return found
