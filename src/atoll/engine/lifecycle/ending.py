"""How a sandbox stops or is destroyed: the work of the transitions ``stop`` and ``destroy``."""

from typing import TYPE_CHECKING

from atoll.engine.egress.stored import Egress
from atoll.engine.lifecycle import freezing
from atoll.engine.processes.records import GONE, SLEEP
from atoll.engine.store import record as rules
from atoll.errors import ContainerUnavailableError
from atoll.wire.sandbox import SandboxOptions, State

if TYPE_CHECKING:
    from atoll.engine.sandbox import Sandbox


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
    asleep = record.state is State.STOPPING
    await box.shared.processes.watches.gone(record.key, SLEEP if asleep else GONE)
    never_ran = record.state is State.STARTING and record.started_at is None
    await box.entry.save(
        state=State.CREATED if never_ran else State.STOPPED,
        reason=record.reason if asleep else _ended(record.state),
        host_ref=None,
    )
    box.left()
    box.shared.objects.stopped(box)


async def _remove(box: "Sandbox", host_ref: str) -> None:
    """Remove what a start made.

    Raises:
        ContainerUnavailableError: its container is still there, so there must not be another one.
    """
    life = box.shared.lifecycle
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
