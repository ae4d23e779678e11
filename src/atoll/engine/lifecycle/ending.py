"""How a sandbox stops or is destroyed: the work of the transitions ``stop`` and ``destroy``."""

import asyncio
from typing import TYPE_CHECKING

import structlog

from atoll.engine.egress.stored import Egress
from atoll.engine.lifecycle import freezing
from atoll.engine.processes.records import GONE, SLEEP
from atoll.engine.store import record as rules
from atoll.errors import ContainerUnavailableError
from atoll.runtime.base import Remote
from atoll.wire.sandbox import SandboxOptions, State

if TYPE_CHECKING:
    from atoll.engine.sandbox import Sandbox


log = structlog.get_logger(__name__)

END_TIMEOUT = 5.0
"""Seconds a node has to say that a sandbox with a lease has ended; else its lease is waited out."""

LOOK = 1.0
"""Seconds between two looks at whether the node says it after all."""

TERM = "SIGTERM"
"""What commands are told first when their sandbox stops."""


async def stop(box: "Sandbox", reason: str, signal: str = TERM) -> None:
    """Keep the session state, let the agent end all commands, remove the container."""
    endpoint = box.endpoint
    if endpoint and box.is_in(State.FROZEN):
        await freezing.thaw(box, endpoint)
    await box.entry.save(state=State.STOPPING, reason=reason)
    box.shared.faults.at("sleep.recorded")
    if endpoint:
        await box.carried.keep(endpoint, lambda: True)
        box.shared.faults.at("sleep.sessions")
        await box.shared.lifecycle.shut_down(endpoint, signal)
        box.shared.faults.at("sleep.shut_down")
    await clean_up(box)


async def clean_up(box: "Sandbox") -> None:
    """Remove what a start made and record that the sandbox is stopped."""
    await box.entry.claim()
    record, endpoint = box.entry.existing, box.endpoint
    box.counted()
    box.forget_endpoint()
    if record.host_ref:
        await _remove(box, record.host_ref)
    if endpoint:
        endpoint.cut()
    box.shared.faults.at("sleep.removed")
    fenced = box.entry.existing.fencing
    asleep = record.state is State.STOPPING and not fenced
    await box.shared.processes.watches.gone(record.key, SLEEP if asleep else GONE)
    never_ran = record.state is State.STARTING and record.started_at is None
    await box.entry.save(
        state=State.CREATED if never_ran else State.STOPPED,
        reason=rules.NODE_LOST if fenced else record.reason if asleep else _ended(record.state),
        host_ref=None,
    )
    box.left()
    box.shared.objects.stopped(box)


async def fence(box: "Sandbox") -> None:
    """Have a sandbox with a lease, which no engine reaches, end itself; wait until it must have."""
    endpoint = box.endpoint
    await box.entry.save(state=State.STOPPING, reason=rules.FENCING)
    box.shared.faults.at("fence.recorded")
    if endpoint:
        endpoint.cut()
    await clean_up(box)


async def _outlive(box: "Sandbox", host_ref: str, lease: float) -> None:
    """Wait until what has a lease has ended: its node says so, or nobody can have renewed it.

    Raises:
        ContainerUnavailableError: the cluster's API is not there.
    """
    force = box.entry.existing.in_force  # a first start that was left has none yet
    runtime = box.shared.lifecycle.parts.runtime(
        (force and force.level) or box.wanted.runtime or ""
    )
    if not isinstance(runtime, Remote):
        raise TypeError(f"level {runtime.level} has no leases")
    if not box.entry.existing.fencing:
        if await runtime.end(host_ref, END_TIMEOUT):
            return
        if not box.is_in(State.STARTING):
            await box.entry.save(state=State.STOPPING, reason=rules.FENCING)
    if box.entry.existing.fencing:  # of a start under way nobody renews anything, and nothing runs
        log.warning("waiting for the end of a lease", sandbox=box.id, host_ref=host_ref)
        if await _ended_first(box, runtime, host_ref, lease):
            return
    await runtime.abandon(host_ref)


async def _ended_first(box: "Sandbox", runtime: Remote, host_ref: str, lease: float) -> bool:
    """Return whether its node said that it has ended before it must have."""
    over = asyncio.create_task(box.shared.peers.outlived(host_ref, lease))
    try:
        while not over.done():
            if await runtime.end(host_ref, LOOK):
                return True
        over.result()
    finally:
        over.cancel()
    return False


def _lease(box: "Sandbox") -> float:
    record = box.entry.existing
    if record.state is State.STARTING:
        return rules.lease(box.defaults, box.shared.settings)
    return record.in_force.lease if record.in_force else 0.0


async def _remove(box: "Sandbox", host_ref: str) -> None:
    """Remove what a start made.

    Raises:
        ContainerUnavailableError: its container is still there, so there must not be another one.
    """
    life = box.shared.lifecycle
    if lease := _lease(box):
        await _outlive(box, host_ref, lease)
    if await life.remove(host_ref):
        return
    for runtime in life.parts.runtimes.values():
        if host_ref in await runtime.list():
            raise ContainerUnavailableError(
                f"the container of {box.id!r} cannot be removed, and may still run",
                context={"reason": "node"},
                suggestion="wait for its node, or delete the node if it is gone for good",
                retry_after=10.0,
            )


def _ended(state: State) -> str:
    return rules.START_FAILED if state is State.STARTING else rules.CONTAINER_ENDED


async def destroy(box: "Sandbox", reason: str) -> None:
    """Leave a tombstone, then remove everything."""
    record, endpoint, shared = box.entry.existing, box.endpoint, box.shared
    if record.live:
        box.counted()
    box.forget_endpoint()
    # The tombstone comes first: from here on a crash leaves only orphans for the reaper.
    await box.entry.save(
        state=State.DESTROYED, reason=reason, host_ref=None, in_force=None, env={}, wanted=SandboxOptions(),
        egress=Egress(),
        expires_at=rules.forgotten(shared.settings),
    )  # fmt: skip
    shared.faults.at("destroy.recorded")
    try:
        await shared.objects.destroyed(box)
        await box.carried.forget()
        await shared.processes.forget(record.key, record.layer_id)
        shared.faults.at("destroy.processes")
        await shared.ports.forget(record.key)
        await shared.tunnels.forget(record.key)
        await shared.mounts.forget(record.key)
        if record.host_ref:
            await shared.lifecycle.remove(record.host_ref)
        if endpoint:
            endpoint.cut()
        await shared.lifecycle.egress.erase(record.key)
        shared.faults.at("destroy.removed")
        await shared.lifecycle.forget_files(record)
        shared.faults.at("destroy.files")
    finally:
        if record.live:
            box.left()
