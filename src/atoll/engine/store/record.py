"""What the store keeps of a sandbox, and the pure rules over it: merging options, sizes, views."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import Any, NoReturn

import msgspec

from atoll.engine.egress import stored
from atoll.engine.egress.stored import Egress
from atoll.engine.lifecycle.states import LIVE
from atoll.errors import NotSupportedByRuntimeError, ValidationFailedError
from atoll.images import reference
from atoll.settings import MB, MIB, InstanceType, Settings
from atoll.wire.sandbox import (
    CustomInstance,
    Limits,
    NamespaceConfig,
    SandboxInfo,
    SandboxOptions,
    State,
)
from atoll.wire.secrets import SecretUse
from atoll.wire.volumes import PACKAGE_CACHE

MAX_DURATION = 100 * 365 * 24 * 3600 * 1000
"""Milliseconds: what a date can be moved by without leaving the calendar."""

MAX_CORES = 4_096
MAX_SIZE = 1 << 31
"""MiB or MB: in bytes it still is a number that the kernel takes."""

MAX_ENV = 1 << 20
"""Characters of a sandbox's variables: every command is given all of them."""

MAX_LABELS = 64 << 10
"""Characters of a sandbox's labels: every listing shows all of them."""

MAX_USES = 100
"""Secrets of one sandbox: each is looked for in every request."""

# Why a sandbox is in its state: `Record.reason`, and the reason of the event.
REQUESTED = "requested"
IDLE = "idle"
RESTORED = "restored"
MEMORY = "memory"
DISK = "disk"
FENCING = "fencing"
NODE_LOST = "node_lost"
TTL = "ttl"
FREEZE_FAILED = "freeze_failed"
START_FAILED = "start_failed"
CONTAINER_ENDED = "container_ended"

_MOUNT_POINT = re.compile(r"(?:/[^/\0\n]{1,255})+/?")
_OURS = {"/etc", "/run"}  # the engine's own mounts lie in these
_SYSTEM = ("/proc", "/sys", "/dev", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf",
           "/etc/machine-id", "/run/atoll")  # fmt: skip
_VOLUME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")


class Mounted(msgspec.Struct, frozen=True, kw_only=True):
    """A volume as a start mounted it."""

    name: str
    layer_id: str
    read_only: bool = False
    shared: bool = False
    private: bool = False
    size: int = 0

    @property
    def common(self) -> bool:
        """Whether several starts may have it at the same time."""
        return self.read_only or self.shared or self.private


class InForce(msgspec.Struct, frozen=True, kw_only=True):
    """What the last start really used; `wanted` may ask for something else at the next one."""

    image: str
    digest: str
    instance_type: str
    level: str
    runtime: str
    limits: Limits
    unlimited: tuple[str, ...] = ()
    id_base: int = 0
    base_env: dict[str, str] = {}  # the image's
    env: dict[str, str] = {}  # all variables, as the agent was last told
    workdir: str = "/workspace"
    user: str = "0:0"
    command: list[str] = []  # the image's entry point and command
    volumes: dict[str, Mounted] = {}  # by path inside
    lease: float = 0.0  # seconds until its agent ends it unless renewed; 0: never


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One sandbox. `version` counts writes and is what compare-and-set compares."""

    namespace: str
    id: str
    state: State
    layer_id: str  # its files; a new one for every life of the id
    created_at: datetime
    version: int = 0
    generation: int = 0  # of the last start; goes on through destroy and create
    host_ref: str | None = None  # recorded before anything of a start is made
    wanted: SandboxOptions = SandboxOptions()
    env: dict[str, str | None] = {}  # set_env_vars of the sandbox
    egress: Egress = Egress()  # what it may reach, beside the class's and the namespace's word
    in_force: InForce | None = None
    state_changed_at: datetime | None = None
    reason: str | None = None  # why it is in this state
    started_at: datetime | None = None
    last_activity_at: datetime | None = None
    expires_at: datetime | None = None  # end of `ttl`; of a tombstone: when it is forgotten
    exit_code: int | None = None
    actor: str = ""  # which of several engines wrote it last; of one alone, nothing
    snapshot: str | None = None  # the last one taken of its files, or that they began as

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and id: what is unique."""
        return self.namespace, self.id

    @property
    def fencing(self) -> bool:
        """Whether nobody renews its lease any more, so that it is known to end."""
        return self.state is State.STOPPING and self.reason == FENCING

    @property
    def live(self) -> bool:
        """Whether it owns, or after a crash may own, a container."""
        return self.state in LIVE


def now() -> datetime:
    """Return the wall clock: what records hold survives a reboot."""
    return datetime.now(UTC)


def with_env(record: Record, env: Mapping[str, str | None]) -> dict[str, Any]:
    """Return what changes in *record* when *env* is set; refuse what `check_env` refuses."""
    merged = record.env | dict(env)
    check_env(merged)
    return {"env": merged}


def merge(old: SandboxOptions, new: SandboxOptions) -> SandboxOptions:
    """Return *old* with every option that *new* gives."""
    given = {
        name: value
        for name in SandboxOptions.__struct_fields__
        if (value := getattr(new, name)) is not None
    }
    return msgspec.structs.replace(old, **given)


def with_options(record: Record, options: SandboxOptions) -> dict[str, Any]:
    """Return what changes in *record* when *options* are given; nothing when they say the same."""
    merged = merge(record.wanted, options)
    if merged == record.wanted:
        return {}
    return {"wanted": merged, "expires_at": expiry(record.created_at, merged)}


def with_defaults(
    wanted: SandboxOptions, namespace: NamespaceConfig, settings: Settings
) -> SandboxOptions:
    """Return *wanted* with the defaults of its namespace, then those of the engine."""
    return merge(
        SandboxOptions(
            sleep_after_ms=namespace.sleep_after_ms
            if namespace.sleep_after_ms is not None
            else round(settings.lifecycle.sleep_after * 1000),
            keep_alive=False,
            sleep_mode="stop",
            enable_default_session=True,
            instance_type=namespace.instance_type or settings.lifecycle.instance_type,
            image=namespace.image or settings.images.default,
            runtime=settings.runtime.default,
            env={},
            enable_internet=namespace.enable_internet is not False,
            labels=namespace.labels,
            volumes={},
            package_cache="",
        ),
        wanted,
    )


def check_options(options: SandboxOptions, types: Mapping[str, InstanceType]) -> None:
    """Refuse options that can never work, before anything is stored.

    Raises:
        ValidationFailedError: names the option.
        InvalidImageError: `image` is not a reference.
        NotSupportedByRuntimeError: asks for what no runtime can do.
    """
    if options.sleep_mode not in {None, "stop", "freeze", "checkpoint"}:
        _refuse("sleepMode", options.sleep_mode, "use stop, freeze or checkpoint")
    if options.sleep_mode == "checkpoint":
        raise NotSupportedByRuntimeError(
            "no level of isolation here can keep processes on disk",
            context={"field": "sleepMode", "value": "checkpoint"},
            suggestion='use sleep_mode="freeze" (keeps them in memory) or "stop" (keeps files)',
        )
    durations = {
        "sleepAfter": options.sleep_after_ms, "ttl": options.ttl_ms, "queue": options.queue_ms
    }  # fmt: skip
    for name, value in durations.items():
        if value is not None and not 0 <= value <= MAX_DURATION:
            _refuse(name, value, "a duration is not negative and at most 100 years")
    if options.ttl_ms == 0:
        _refuse("ttl", 0, "it would end the sandbox as soon as it is made")
    if options.image is not None and not reference.is_digest(options.image):
        reference.parse(options.image)
    if options.instance_type is not None:
        instance(options.instance_type, types)
    _check_names(options)


def check_defaults(config: NamespaceConfig, types: Mapping[str, InstanceType]) -> None:
    """Refuse defaults of a namespace that no sandbox could start with; raise as `check_options`."""
    options = SandboxOptions(
        image=config.image,
        instance_type=config.instance_type,
        env=dict(config.env),
        sleep_after_ms=config.sleep_after_ms,
        labels=config.labels,
        secrets=config.secrets,
    )
    check_options(options, types)
    stored.check_defaults(config.egress)
    if config.max_instances is not None and config.max_instances < 0:
        _refuse("maxInstances", config.max_instances, "a limit cannot be negative")


def lease(namespace: NamespaceConfig, settings: Settings) -> float:
    """Return the seconds that a sandbox goes on without its engines; 0: it always does."""
    cluster = settings.cluster
    failover = namespace.failover or cluster.failover
    return float(cluster.lease) if failover == "lease" and cluster.replicas else 0.0


def check_engines(config: NamespaceConfig, settings: Settings) -> None:
    """Refuse leases where nobody renews them, and what several engines do not share."""
    if config.warm_pool and settings.cluster.replicas:
        raise NotSupportedByRuntimeError(
            "replicas of an engine have no warm pool",
            context={"field": "warmPool", "value": config.warm_pool},
            suggestion="leave warm_pool out",
        )
    if config.failover == "lease" and not settings.cluster.replicas:
        raise NotSupportedByRuntimeError(
            "only engines with replicas renew leases",
            context={"field": "failover", "value": "lease"},
            suggestion="set cluster.replicas, or leave failover out",
        )


def check_env(env: Mapping[str, str | None]) -> None:
    """Refuse variables that no command could be given, or too many of them."""
    _check_size("env", env, MAX_ENV)
    for variable, text in env.items():
        if not variable or "=" in variable or "\0" in variable + (text or ""):
            _refuse("env", variable, "names have no '=' and nothing has a NUL byte")


def _check_secrets(uses: Mapping[str, SecretUse]) -> None:
    check_env(dict.fromkeys(uses))
    if len(uses) > MAX_USES:
        _refuse("secrets", len(uses), f"a sandbox has {MAX_USES} at most")
    for use in uses.values():
        stored.check_patterns(use.hosts)


def _check_size(field: str, texts: Mapping[str, str | None], limit: int) -> None:
    size = sum(len(name) + len(text or "") for name, text in texts.items())
    if size > limit:
        raise ValidationFailedError(
            f"{field} has {size} characters, more than {limit}",
            context={"field": field, "limit": limit},
            suggestion="put large values into files",
        )


def _check_names(options: SandboxOptions) -> None:
    check_env(options.env or {})
    _check_secrets(options.secrets or {})
    _check_size("labels", options.labels or {}, MAX_LABELS)
    _check_size("volumes", options.volumes or {}, MAX_LABELS)
    for label, meaning in (options.labels or {}).items():
        if not label or not (label + meaning).isprintable() or set(",=") & set(label + meaning):
            _refuse("labels", label, "labels have no ',', '=' or control characters")
    check_volumes(options)


def check_volumes(options: SandboxOptions) -> None:
    """Refuse mount points that cannot be, and those in one another; raise as `check_options`."""
    cache = {PACKAGE_CACHE: options.package_cache} if options.package_cache else {}
    taken: list[PurePosixPath] = []
    for path, volume in [*(options.volumes or {}).items(), *cache.items()]:
        if not _MOUNT_POINT.fullmatch(path) or {".", ".."} & set(path.split("/")):
            _refuse("volumes", path, "a volume appears at an absolute path without '..', not at /")
        if not _VOLUME.fullmatch(volume):
            _refuse("volumes", volume, "names have 1 to 63 letters, digits, '-', '_' or '.'")
        clean = PurePosixPath(path)
        if str(clean) in _OURS or any(clean.is_relative_to(top) for top in _SYSTEM):
            _refuse("volumes", path, "the engine mounts something there itself")
        if any(clean.is_relative_to(other) or other.is_relative_to(clean) for other in taken):
            _refuse("volumes", path, "a volume cannot lie in another one")
        taken.append(clean)


def instance(wanted: str | CustomInstance, types: Mapping[str, InstanceType]) -> InstanceType:
    """Return the size named or described by *wanted*; refuse what is unknown or impossible."""
    if isinstance(wanted, str):
        if wanted not in types:
            _refuse("instanceType", wanted, f"use one of {', '.join(types)}")
        return types[wanted]
    sizes = wanted.memory_mib, wanted.disk_mb
    if not 0 < wanted.vcpu <= MAX_CORES or not all(16 <= size < MAX_SIZE for size in sizes):
        rule = f"0 < vcpu <= {MAX_CORES}, at least 16 MiB and 16 MB, below {MAX_SIZE}"
        _refuse("instanceType", msgspec.to_builtins(wanted), rule)
    return InstanceType(memory_mib=wanted.memory_mib, vcpu=wanted.vcpu, disk_mb=wanted.disk_mb)


def _refuse(field: str, value: object, rule: str) -> NoReturn:
    raise ValidationFailedError(
        f"{value!r} is not a valid {field}",
        context={"field": field, "value": value},
        suggestion=rule,
    )


def limits(size: InstanceType, pids: int) -> Limits:
    """Return *size* in bytes and cores."""
    return Limits(memory=size.memory_mib * MIB, cpu=size.vcpu, disk=size.disk_mb * MB, pids=pids)


def expiry(created: datetime, options: SandboxOptions) -> datetime | None:
    """Return when `ttl` ends the sandbox, or None."""
    return None if options.ttl_ms is None else created + timedelta(milliseconds=options.ttl_ms)


def forgotten(settings: Settings) -> datetime:
    """Return when the tombstone of what is destroyed now may go."""
    return now() + timedelta(seconds=settings.lifecycle.keep_tombstones)


def activity(record: Record, at: datetime, idle: float, step: float = 1.0) -> dict[str, Any]:
    """Return what changes in *record* when it was last used *idle* seconds before *at*.

    Args:
        step: seconds that are not worth a write.
    """
    used = at - timedelta(seconds=idle)
    last = record.last_activity_at
    return {} if last and used - last < timedelta(seconds=step) else {"last_activity_at": used}


def info(record: Record, namespace: NamespaceConfig, settings: Settings) -> SandboxInfo:
    """Return what `info` and `list` tell: in force where it was started, else what a start uses."""
    wanted = with_defaults(record.wanted, namespace, settings)
    force = record.in_force
    kind = wanted.instance_type or settings.lifecycle.instance_type
    return SandboxInfo(
        id=record.id,
        namespace=record.namespace,
        state=record.state,
        generation=record.generation,
        image=force.image if force else wanted.image or "",
        instance_type=force.instance_type if force else _type_name(kind),
        isolation=force.level if force else wanted.runtime or "",
        runtime=force.runtime if force else "",
        limits=force.limits
        if force
        else limits(instance(kind, settings.instance_types), settings.runtime.pids),
        unlimited=list(force.unlimited) if force else [],
        wanted=record.wanted,
        labels=wanted.labels or {},
        volumes={path: used.name for path, used in force.volumes.items()} if force else {},
        created_at=record.created_at,
        state_changed_at=record.state_changed_at,
        reason=record.reason,
        placement_id=record.host_ref,
        started_at=record.started_at,
        last_activity_at=record.last_activity_at,
        exit_code=record.exit_code,
    )


def _type_name(kind: str | CustomInstance) -> str:
    return kind if isinstance(kind, str) else "custom"
