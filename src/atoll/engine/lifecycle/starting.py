"""How a sandbox starts, wakes from a stop, or fails to: the work of the transition ``start``."""

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from atoll.engine.capacity import warm
from atoll.engine.capacity.admission import LOOK_AGAIN
from atoll.engine.capacity.warm import Warm
from atoll.engine.commands.operations import Operations
from atoll.engine.egress import control, effective
from atoll.engine.lifecycle import ending, joining, origins, variables
from atoll.engine.lifecycle.activity import Use
from atoll.engine.lifecycle.launch import Launch
from atoll.engine.lifecycle.steps import in_force
from atoll.engine.link.link import Endpoint, LinkError
from atoll.engine.store import record as rules
from atoll.engine.store.entry import outpaced
from atoll.engine.store.record import InForce, Record
from atoll.errors import ContainerNotReadyError, SandboxError
from atoll.wire.sandbox import SandboxOptions, State

if TYPE_CHECKING:
    from atoll.engine.sandbox import Sandbox


async def start(box: "Sandbox") -> None:
    """Start *box*, with its files if it has some.

    Raises:
        SandboxError: there is no room, or a step failed; nothing of the start is left.
    """
    if (
        found := await box.load()
    ) and found.live:  # a stop that failed half-way, or its engine died
        if not joining.may_take(box):
            raise box.entry.outpaced()
        await ending.clean_up(box)
    joining.uncount(box)
    shared, wanted = box.shared, box.wanted
    rules.instance(wanted.instance_type or "", shared.settings.instance_types)
    shared.lifecycle.parts.runtime(wanted.runtime or "")
    found = await box.load()
    shared.lifecycle.egress.check_internet(found.wanted.enable_internet if found else None)
    deadline = time.monotonic() + (wanted.queue_ms or 0) / 1000
    await shared.admission.enter(
        box.namespace,
        box.defaults.max_instances,
        (wanted.queue_ms or 0) / 1000,
        new=found is None or found.in_force is None,
    )
    before = State.CREATED
    try:
        if found := await box.load():
            before = found.state
        if ready := await _warm(box, wanted):
            endpoint = await _assigned(box, ready)
        else:
            endpoint = await _made(box, wanted, deadline)
        await _started(box, endpoint)
    except BaseException as error:
        await _not_started(box, before)
        if isinstance(error, SandboxError):
            await shared.objects.failed(box, error)
        raise
    finally:
        shared.admission.started()


async def _warm(box: "Sandbox", wanted: SandboxOptions) -> Warm | None:
    """Return a container of the pool, for a sandbox that has no files of its own yet."""
    kind, record = wanted.instance_type, box.record
    mounts = wanted.volumes or wanted.package_cache
    if (record and record.in_force) or mounts or not isinstance(kind, str):
        return None
    policy = control.policy(box)
    if control.uses(box) or effective.opens_tls(policy):
        return None  # it does not trust the sandbox's authority
    if box.shared.lifecycle.egress.closes_late(policy):
        return None  # what it had open would be open for a while
    return await box.shared.pool.take(warm.Kind(wanted.image or "", kind, wanted.runtime or ""))


async def _assigned(box: "Sandbox", ready: Warm) -> Endpoint:
    """Make a warm container that of *box*."""
    told = ready.ready
    box.shared.live[box.namespace, box.id] = box
    try:
        record = await box.entry.assign(
            ready.host_ref, ready.layer_id, lambda old: _in_force_of(box, told, old)
        )
    except BaseException:
        await box.shared.pool.discard(ready)
        raise
    box.shared.faults.at("assign.recorded")
    endpoint = box.shared.lifecycle.endpoint(record)
    try:
        await warm.name(box.shared.lifecycle, endpoint, record, told.env)
    except LinkError as error:
        raise ContainerNotReadyError(
            f"a container kept ready for {box.id!r} had ended: {error}", retry_after=0.1
        ) from error
    box.shared.faults.at("assign.named")
    return endpoint


def _in_force_of(box: "Sandbox", told: InForce, record: Record) -> InForce:
    env = variables.effective(told.base_env, *variables.layers(box.defaults, record))
    return msgspec.structs.replace(told, env=env)


async def _placed(box: "Sandbox", record: Record, deadline: float) -> None:
    """Take a place of the namespace, among all engines, for a start that is recorded."""
    limit, shared = box.defaults.max_instances, box.shared
    while limit is not None and not await shared.store.place(record, limit):
        if time.monotonic() >= deadline:
            raise shared.admission.taken(box.namespace, limit)
        await asyncio.sleep(LOOK_AGAIN)


async def _made(box: "Sandbox", wanted: SandboxOptions, deadline: float) -> Endpoint:
    """Start a container for *box*."""
    shared = box.shared
    size = rules.instance(wanted.instance_type or "", shared.settings.instance_types)
    origin = await origins.resolved(shared.store, box.namespace, wanted, box.record)
    volumes = await shared.volumes.mounted(box.namespace, wanted)
    shared.secrets.check(box.namespace, control.uses(box))
    record = await box.entry.start(shared.new_name(), shared.new_name())
    shared.faults.at("start.recorded")
    shared.live[record.key] = box
    await _placed(box, record, deadline)
    authority = await control.prepare(box)
    record = box.record or record
    launch = Launch(record, origin.options, size, variables.layers(box.defaults, record))
    launch.volumes, launch.base, launch.image_name = volumes, origin.snapshot, origin.image
    launch.authority, launch.policy = authority, control.policy(box)
    launch.lease = rules.lease(box.defaults, shared.settings)
    endpoint = await shared.lifecycle.start(launch)
    force, before = in_force(shared.lifecycle, launch), record.in_force
    if before:  # what carried sessions know
        force = msgspec.structs.replace(force, env=before.env)
        await asyncio.gather(_runs(box, force), box.carried.restore(endpoint))
        shared.faults.at("start.sessions")
    else:
        await _runs(box, force, launch.base)
    return endpoint


async def _runs(box: "Sandbox", force: InForce, base: str | None = None) -> None:
    now, began = rules.now(), {"snapshot": base} if base else {}
    await box.entry.save(
        state=State.RUNNING,
        in_force=force,
        started_at=now,
        last_activity_at=now,
        exit_code=None,
        **began,
    )
    box.shared.faults.at("start.running")


async def _started(box: "Sandbox", endpoint: Endpoint) -> None:
    box.reached(Operations(endpoint, box.shared.settings.lifecycle.orphan_grace))
    # From here on changes are applied at once; those made during the start were not.
    await box.apply(endpoint)
    await box.shared.mounts.woken(box, endpoint)
    await box.shared.processes.woken(box, endpoint)
    box.shared.faults.at("start.processes")
    box.activity.note(Use.START)
    box.shared.objects.preparing.begin(box)


async def _not_started(box: "Sandbox", before: State) -> None:
    try:
        await _undone(box, before)
    finally:  # whoever destroys it meanwhile cancels this, too
        box.left()


async def _undone(box: "Sandbox", before: State) -> None:
    await box.entry.settle()
    box.forget_endpoint()
    record = box.record
    ours = record is not None and record.actor == box.shared.store.actor
    if record and record.host_ref and ours:  # who lost a race must not remove the winner's
        await box.shared.lifecycle.remove(record.host_ref)
        state = before if record.state is State.STARTING else State.STOPPED
        try:
            await box.entry.save(state=state, reason=rules.START_FAILED, host_ref=None)
        except ContainerNotReadyError as error:
            if not outpaced(error):  # another engine took it over
                raise
