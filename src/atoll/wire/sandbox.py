"""Sandboxes and namespaces on the wire: options, states, what `info` and `list` tell."""

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

import msgspec

from atoll.wire.base import Request, Result, Whole
from atoll.wire.egress import EgressDefaults
from atoll.wire.secrets import SecretUse


class State(StrEnum):
    """Engine states. Which may follow which is data in `atoll.engine.lifecycle.states`."""

    CREATED = "created"
    STARTING = "starting"
    RUNNING = "running"
    FROZEN = "frozen"
    STOPPING = "stopping"
    STOPPED = "stopped"
    DESTROYED = "destroyed"


class CustomInstance(Request, frozen=True, kw_only=True):
    """A size of one's own instead of a named instance type."""

    vcpu: float
    memory_mib: Whole
    disk_mb: Whole


class SandboxOptions(Request, frozen=True, kw_only=True):
    """Options of `get_sandbox`, as far as the caller gave them; None means "not given".

    Timers, labels, `env` and network options apply at once; `image`, `instance_type`, `runtime`,
    `volumes` and `package_cache` at the next start.
    """

    sleep_after_ms: Whole | None = msgspec.field(default=None, name="sleepAfter")
    keep_alive: bool | None = None
    sleep_mode: str | None = None  # stop, freeze, checkpoint
    enable_default_session: bool | None = None
    instance_type: str | CustomInstance | None = None
    image: str | None = None
    runtime: str | None = None
    env: dict[str, str | None] | None = None
    secrets: dict[str, SecretUse] | None = None  # by variable
    enable_internet: bool | None = None
    labels: dict[str, str] | None = None
    ttl_ms: Whole | None = msgspec.field(default=None, name="ttl")
    queue_ms: Whole | None = msgspec.field(default=None, name="queue")
    volumes: dict[str, str] | None = None
    package_cache: str | None = None  # name of a volume; "" for none


class StopRequest(Request, frozen=True, kw_only=True):
    """Stop a sandbox: the signal, a grace, KILL."""

    signal: str = "SIGTERM"


class Limits(Result, frozen=True, kw_only=True):
    """Limits of one sandbox. Memory and disk in bytes, cpu in cores."""

    memory: int
    cpu: float
    disk: int
    pids: int


class SandboxInfo(Result, frozen=True, kw_only=True):
    """What the engine knows about a sandbox. Reading it never starts anything."""

    id: str
    namespace: str
    state: State
    generation: int
    image: str
    instance_type: str
    isolation: str  # the level really in force: container, gvisor, bwrap
    runtime: str  # the program that gives it: runc, crun, runsc, bwrap
    limits: Limits
    unlimited: list[str] = msgspec.field(
        default_factory=list
    )  # those of `limits` that its last start could not set for the sandbox as a whole
    wanted: SandboxOptions
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    volumes: dict[str, str] = msgspec.field(default_factory=dict)  # of the last start: path → name
    created_at: datetime
    state_changed_at: datetime | None = None
    reason: str | None = None  # why it is in this state: see docs/lifecycle.md
    placement_id: str | None = None  # names this start, while there is one
    started_at: datetime | None = None
    last_activity_at: datetime | None = None
    exit_code: int | None = None
    disk_used: int | None = (
        None  # bytes, 30 s old at most; None in listings, and when not known now
    )


class SandboxEvent(Result, frozen=True, kw_only=True):
    """Something that happened to a sandbox. `seq` counts from 1 for each id.

    `type` is the state it went to, or one of the other words in docs/lifecycle.md.
    """

    type: str
    at: datetime
    seq: int = 0
    generation: int = 0
    reason: str | None = None


class EventsQuery(Request, frozen=True, kw_only=True):
    """Events whose `seq` is above `after`; `follow` goes on as they happen."""

    after: Whole = 0
    follow: bool = False


class Metrics(Result, frozen=True, kw_only=True):
    """What a sandbox uses now. Memory and disk in bytes, cpu time in seconds since its start.

    All but the disk is 0 while it sleeps and nothing of it runs. Bytes are those of its network since
    its start; `connections` that the egress gateway has open, and how it decided, since then too: 0
    without a policy but for names.
    """

    memory: int = 0
    cpu_time: float = 0.0
    pids: int = 0
    oom_kills: int = 0
    disk: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    connections: int = 0
    allowed: int = 0
    refused: int = 0
    handled: int = 0
    isolation: str = (
        ""  # the level really in force, as `SandboxInfo` has it; "": of an older engine
    )
    limits: Limits


class SandboxPage(Result, frozen=True, kw_only=True):
    """One page of a listing, an iterable of its entries; `cursor` is None on the last."""

    sandboxes: list[SandboxInfo]
    cursor: str | None = None

    def __iter__(self) -> Iterator[SandboxInfo]:
        return iter(self.sandboxes)

    def __len__(self) -> int:
        return len(self.sandboxes)


class NamespaceConfig(Request, frozen=True, kw_only=True):
    """Defaults of a namespace: what a `containers` entry of wrangler.jsonc says."""

    image: str | None = None
    instance_type: str | CustomInstance | None = None
    max_instances: Whole | None = None
    env: dict[str, str] = msgspec.field(default_factory=dict)
    sleep_after_ms: Whole | None = msgspec.field(default=None, name="sleepAfter")
    enable_internet: bool | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    warm_pool: Whole | None = None  # containers kept ready of its image and instance type
    egress: EgressDefaults = EgressDefaults()
    secrets: dict[str, SecretUse] = msgspec.field(default_factory=dict)  # by variable
    failover: Literal["strict", "lease"] | None = None  # in a cluster, when a node is cut off


class Version(Result, frozen=True, kw_only=True):
    """Answer of the version handshake."""

    version: str
    api: int
    engine_id: str


class ImageInfo(Result, frozen=True, kw_only=True):
    """An image as the engine stores it. Size in bytes, own layers only."""

    reference: str
    digest: str
    size: int
    created_at: datetime


class BuildProgress(Result, frozen=True, kw_only=True, tag="progress", tag_field="type"):
    """A line of a build's output; empty ones show that it is alive."""

    message: str


class BuildDone(Result, frozen=True, kw_only=True, tag="result", tag_field="type"):
    """The image is stored; the last event of a build that succeeds."""

    image: ImageInfo


class BuildFailed(Result, frozen=True, kw_only=True, tag="error", tag_field="type"):
    """The build failed; `error` is the envelope. The last event of a build that fails."""

    error: dict[str, Any]


BuildEvent = BuildProgress | BuildDone | BuildFailed


class ImageList(Result, frozen=True, kw_only=True):
    """All stored images."""

    images: list[ImageInfo]
