"""Sandbox classes of a Worker on the wire: how a Worker attaches, is called, and answers.

The Worker dials the engine, never the other way round: no value of a caller is an address that
the engine connects to. One stream brings deliveries to the Worker; each is answered by a request
of its own. A delivery has a `key` that names the work: the same work delivered twice (an engine
that was killed before it heard the answer) has the same key, and a Worker that still knows the
outcome answers with it.
"""

from datetime import datetime
from typing import Any

import msgspec

from atoll.wire.base import Millis, Request, Result
from atoll.wire.egress import EgressDefaults
from atoll.wire.secrets import SecretUse

HOOKS = ("on_start", "on_stop", "on_error", "on_activity_expired")
"""Hooks of a sandbox class that the engine calls."""

CALLS_HEADER = "atoll-calls"
"""Header of requests that a method makes: the ids of the calls that wait for it, outermost first."""

MAX_CALLS = 32
"""How many calls may wait for one another: more is a method that calls itself without end."""

MAX_OUTBOUND_BODY = 8 << 20
"""Bytes of a request's or an answer's body that passes an outbound handler, which is held in memory."""

HEARTBEAT = 15.0
"""Seconds of silence after which a Worker's stream carries a sign of life."""


class RenamedClass(Request, frozen=True, kw_only=True):
    """A class that has a new name; its sandboxes keep everything."""

    from_: str = msgspec.field(name="from")
    to: str


class Migration(Request, frozen=True, kw_only=True):
    """One step of a project's history of classes, applied once."""

    tag: str
    new_sqlite_classes: list[str] = msgspec.field(default_factory=list)
    renamed_classes: list[RenamedClass] = msgspec.field(default_factory=list)
    deleted_classes: list[str] = msgspec.field(default_factory=list)


class ProjectConfig(Request, frozen=True, kw_only=True):
    """The classes of a project, each with the namespace a new one gets, and all migrations."""

    classes: dict[str, str] = msgspec.field(default_factory=dict)
    migrations: list[Migration] = msgspec.field(default_factory=list)


class Project(Result, frozen=True, kw_only=True):
    """A project as the engine knows it: the namespace of each class, and the last migration."""

    namespaces: dict[str, str]
    tag: str | None = None


class ClassOptions(Request, frozen=True, kw_only=True):
    """Class attributes: defaults of the class's sandboxes, above those of the namespace."""

    sleep_after_ms: Millis | None = msgspec.field(default=None, name="sleepAfter")
    env: dict[str, str] = msgspec.field(default_factory=dict)
    enable_internet: bool | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    entrypoint: list[str] | None = None
    required_ports: list[int] = msgspec.field(default_factory=list)
    egress: EgressDefaults = EgressDefaults()
    secrets: dict[str, SecretUse] = msgspec.field(default_factory=dict)  # by variable


class WorkerClass(Request, frozen=True, kw_only=True):
    """A sandbox class: which methods may be called and which hooks it has."""

    namespace: str
    name: str
    methods: list[str] = msgspec.field(default_factory=list)
    hooks: list[str] = msgspec.field(default_factory=list)
    alarm: bool = False
    options: ClassOptions = ClassOptions()


class AttachWorker(Request, frozen=True, kw_only=True):
    """A Worker process that is ready. `running`: calls it was given before and works on still."""

    classes: list[WorkerClass] = msgspec.field(default_factory=list)
    crons: list[str] = msgspec.field(default_factory=list)
    running: list[str] = msgspec.field(default_factory=list)


class Attached(Result, frozen=True, kw_only=True, tag="attached", tag_field="type"):
    """First event. `objects`: where storage is kept, told to Workers on the engine's machine."""

    objects: str | None = None


class Delivery(Result, frozen=True, kw_only=True, tag="delivery", tag_field="type"):
    """Something to do. `kind` is method, hook, alarm, schedule, cron, outbound or forget.

    `object` names one life of the sandbox's id: its storage. `calls` are the calls that wait for
    this one, itself last.
    """

    call: str
    key: str
    kind: str
    namespace: str = ""
    id: str = ""
    object: str = ""
    method: str = ""
    args: list[Any] = msgspec.field(default_factory=list)
    kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    calls: list[str] = msgspec.field(default_factory=list)


class Cancel(Result, frozen=True, kw_only=True, tag="cancel", tag_field="type"):
    """Nobody waits for this call any more."""

    call: str


class Alive(Result, frozen=True, kw_only=True, tag="alive", tag_field="type"):
    """A sign of life."""


class Superseded(Result, frozen=True, kw_only=True, tag="superseded", tag_field="type"):
    """Another Worker process attached for the project: this one gets nothing any more."""


WorkerEvent = Attached | Delivery | Cancel | Alive | Superseded


class Answer(Request, frozen=True, kw_only=True):
    """The outcome of a call: a value as of `wire.values`, or an error's envelope."""

    value: Any = None
    error: dict[str, Any] | None = None


class CallRequest(Request, frozen=True, kw_only=True):
    """Call a method of a sandbox class; arguments as of `wire.values`."""

    method: str
    args: list[Any] = msgspec.field(default_factory=list)
    kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    timeout_ms: Millis | None = msgspec.field(default=None, name="timeout")


class CallResult(Result, frozen=True, kw_only=True):
    """What the method returned, as of `wire.values`."""

    value: Any = None


class ScheduleRequest(Request, frozen=True, kw_only=True):
    """Call a method later: at a time, or after a delay."""

    method: str
    payload: Any = None
    at: datetime | None = None
    delay_ms: Millis | None = msgspec.field(default=None, name="delay")


class Schedule(Result, frozen=True, kw_only=True):
    """A call that is due at `time`. `attempts` counts those that failed."""

    id: str
    method: str
    payload: Any = None
    time: datetime
    attempts: int = 0


class ScheduleList(Result, frozen=True, kw_only=True):
    """All schedules of a sandbox, the next one first."""

    schedules: list[Schedule]


class Alarm(Result, frozen=True, kw_only=True):
    """When the alarm of an object is due; None: none is set."""

    at: datetime | None = None


class SetAlarm(Request, frozen=True, kw_only=True):
    """Set the alarm; it replaces the one that is set."""

    at: datetime


class Cron(Result, frozen=True, kw_only=True):
    """What a `scheduled` handler gets: its expression and when it was due."""

    cron: str
    scheduled_time: datetime
