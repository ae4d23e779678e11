"""What an engine does about sandboxes of others: several engines have one directory of records.

Whoever wrote a record last is its actor. While that one lives, a start or a stop that it began is
its own, and everybody else waits; what it leaves when it dies, the next one that looks takes over, by
a compare-and-set before anything else. A sandbox that runs is joined by all: each talks to its agent
itself, and none more than the others.
"""

from typing import TYPE_CHECKING

import structlog

from atoll.engine.commands.operations import Operations
from atoll.engine.egress import control
from atoll.engine.lifecycle import ending
from atoll.engine.link.link import LinkError
from atoll.engine.store import record as rules
from atoll.engine.store.entry import outpaced
from atoll.engine.store.record import Record
from atoll.errors import ContainerNotReadyError, ContainerUnavailableError, SandboxError
from atoll.wire.sandbox import State

if TYPE_CHECKING:
    from atoll.engine.sandbox import Sandbox

log = structlog.get_logger(__name__)

TIMEOUT = 10.0
"""Seconds an agent has to answer an engine that did not start it."""

LOOK_AGAIN = 1.0
"""Seconds between two looks at whether the engine that is at work still lives."""

_UNDER_WAY = frozenset({State.STARTING, State.STOPPING})


def theirs(box: "Sandbox") -> bool:
    """Whether another engine, which lives, starts or stops the sandbox just now."""
    record = box.record
    if record is None or record.state not in _UNDER_WAY:
        return False
    return record.actor != box.shared.store.actor and box.shared.peers.alive(record.actor)


def left_behind(box: "Sandbox") -> bool:
    """Whether an engine that died had begun to start or stop it."""
    record = box.record
    if record is None or record.state not in _UNDER_WAY or theirs(box):
        return False
    return record.actor != box.shared.store.actor


def unmet(box: "Sandbox") -> bool:
    """Whether another engine started it, and this one has not spoken to it yet."""
    several = bool(box.shared.store.actor)
    return several and box.endpoint is None and box.is_in(State.RUNNING)


async def meet(box: "Sandbox") -> None:
    """Get to know a start that another engine made; where there is none, nothing happens.

    Raises:
        ContainerUnavailableError: it runs, but cannot be reached from here.
    """
    await box.load()
    while unmet(box):
        try:
            await box.alone("join", lambda: join(box))
        except ContainerNotReadyError as error:
            if not outpaced(error):
                raise
            await box.entry.follow(fresh=True)


async def tried(box: "Sandbox") -> None:
    """As `meet`; what cannot be met now is met when somebody calls it."""
    try:
        await meet(box)
    except SandboxError as error:
        log.warning("sandbox not met", sandbox=box.id, reason=str(error))


async def join(box: "Sandbox") -> None:
    """Get to know a sandbox that runs; record its end if that was the end of it; raise as `meet`."""
    if not unmet(box):
        return
    record = box.entry.existing
    endpoint = box.shared.lifecycle.endpoint(record)
    if not await endpoint.runtime.find(endpoint.host_ref):
        await box.entry.follow(fresh=True)
        if box.record == record:
            await ending.clean_up(box)
        return
    try:
        await box.shared.lifecycle.hello(endpoint, TIMEOUT)
    except LinkError as error:
        raise ContainerUnavailableError(
            f"sandbox {box.id!r} runs, but this engine does not reach it: {error}",
            context={"reason": "network"},
            retry_after=1.0,
        ) from error
    box.counted()
    box.reached(Operations(endpoint, box.shared.settings.lifecycle.orphan_grace))
    note_use(box, record)
    await control.adopt(box, endpoint)
    await box.shared.processes.watches.adopt(box, endpoint)


async def part(box: "Sandbox") -> None:
    """Forget a start that another engine ended."""
    owner = box.namespace, box.id
    if box.endpoint:
        box.endpoint.cut()
    box.forget_endpoint()
    await box.shared.processes.watches.release(owner)
    if owner in box.shared.live:
        box.left()


def uncount(box: "Sandbox") -> None:
    """Give back the place of a container that another engine has ended meanwhile, if it has one."""
    if (box.namespace, box.id) in box.shared.live:
        box.left()


def note_use(box: "Sandbox", record: Record) -> None:
    """Count what was used by way of other engines as activity."""
    if record.last_activity_at:
        since = (rules.now() - record.last_activity_at).total_seconds()
        box.activity.heard(since)


async def followed(box: "Sandbox") -> None:
    """Do what another engine's change of the record asks for, if it did change it."""
    await box.settle()
    if await box.shared.store.get(box.namespace, box.id) != box.record:
        await box.alone("follow", lambda: _follow(box))
    if box.transition is None and not (box.record and box.record.live):
        uncount(box)  # what this engine was about to end, another one has
    await meet(box)


async def _follow(box: "Sandbox") -> None:
    await box.entry.follow()
    record, endpoint = box.record, box.endpoint
    if record:
        note_use(box, record)
    same = record and record.state is State.RUNNING and endpoint
    if endpoint and not (same and record and record.host_ref == endpoint.host_ref):
        await part(box)


async def used_elsewhere(box: "Sandbox") -> bool:
    """Whether the agent has commands of other engines' callers under way."""
    if not box.shared.store.actor or box.operations is None:
        return False
    return await box.operations.any_running()


def may_take(box: "Sandbox") -> bool:
    """Whether a record that is under way was left by an engine that died, or is this one's own."""
    return not theirs(box) and not unmet(box)
