"""What a sandbox uses: measured from outside, so that it wakes nothing and a frozen one tells too."""

from atoll.engine.lifecycle.sequence import Lifecycle
from atoll.engine.store.record import Record
from atoll.runtime.base import Usage
from atoll.wire.sandbox import Metrics, SandboxInfo

_NOTHING = Usage(memory=0, cpu_time=0.0, pids=0, oom_kills=0)


async def measured(life: Lifecycle, record: Record, info: SandboxInfo) -> Metrics:
    """Return what the sandbox of *record*, and of *info*, uses now."""
    use, bytes_up, bytes_down, decided = _NOTHING, 0, 0, None
    if record.live and record.host_ref and record.in_force:
        use = await life.parts.runtime(record.in_force.level).usage(record.host_ref)
        bytes_up, bytes_down = await life.parts.networks.traffic(record.host_ref)
        decided = await life.egress.decided(record.host_ref)
        if decided and life.parts.networks.by_gateway:
            bytes_up, bytes_down = decided.bytes_up, decided.bytes_down
    disk = 0
    if await life.parts.layers.exists(record.layer_id):
        disk = await life.parts.layers.usage(record.layer_id)
    return Metrics(
        memory=use.memory,
        cpu_time=use.cpu_time,
        pids=use.pids,
        oom_kills=use.oom_kills,
        disk=disk,
        bytes_up=bytes_up,
        bytes_down=bytes_down,
        connections=decided.connections if decided else 0,
        allowed=decided.allowed if decided else 0,
        refused=decided.refused if decided else 0,
        handled=decided.handled if decided else 0,
        isolation=info.isolation,
        limits=info.limits,
    )
