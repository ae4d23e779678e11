"""How a sandbox starts, wakes from a stop, or fails to: the work of the transition ``start``."""

from typing import TYPE_CHECKING

import msgspec

from atoll.engine import ending, variables
from atoll.engine import record as rules
from atoll.engine.activity import Use
from atoll.engine.lifecycle import Launch, in_force
from atoll.engine.link import Endpoint
from atoll.engine.operations import Operations
from atoll.wire.sandbox import State

if TYPE_CHECKING:
    from atoll.engine.sandbox import Sandbox


async def start(box: "Sandbox") -> None:
    """Start *box*, with its files if it has some.

    Raises:
        SandboxError: there is no room, or a step failed; nothing of the start is left.
    """
    if (found := await box.load()) and found.live:  # a stop that failed half-way
        await ending.clean_up(box)
    shared, wanted = box.shared, box.wanted
    size = rules.instance(wanted.instance_type or "", shared.settings.instance_types)
    shared.lifecycle.parts.runtime(wanted.runtime or "")
    await shared.admission.enter(
        box.namespace, box.defaults.max_instances, (wanted.queue_ms or 0) / 1000
    )
    before = found.state if (found := await box.load()) else State.CREATED
    try:
        record = await box.entry.start(shared.new_name(), shared.new_name())
        shared.live[record.key] = box
        launch = Launch(record, wanted, size, variables.layers(box.defaults, record))
        endpoint = await shared.lifecycle.start(launch)
        await _started(box, launch, endpoint)
    except BaseException:
        await _not_started(box, before)
        raise


async def _started(box: "Sandbox", launch: Launch, endpoint: Endpoint) -> None:
    force, before = in_force(box.shared.lifecycle, launch), box.entry.existing.in_force
    if before:  # what carried sessions know
        force = msgspec.structs.replace(force, env=before.env)
    now = rules.now()
    await box.entry.save(
        state=State.RUNNING,
        in_force=force,
        started_at=now,
        last_activity_at=now,
        exit_code=None,
    )
    if before:
        await box.carried.restore(endpoint)
    box.operations = Operations(endpoint, box.shared.settings.lifecycle.orphan_grace)
    box.endpoint = endpoint
    # From here on changes are applied at once; those made during the start were not.
    await box.apply(endpoint)
    await box.shared.processes.woken(box, endpoint)
    box.activity.note(Use.START)


async def _not_started(box: "Sandbox", before: State) -> None:
    await box.entry.settle()
    box.forget_endpoint()
    record = box.record
    if record and record.host_ref:
        await box.shared.lifecycle.remove(record.host_ref)
        state = before if record.state is State.STARTING else State.STOPPED
        await box.entry.save(state=state, reason=rules.START_FAILED, host_ref=None)
    box.left()
