"""What engine and gateway say to each other, on a unix socket. Structs and framing; no I/O.

A frame is its length (4 bytes, big-endian) and MessagePack. The engine asks, each question has a
number and one answer with the same; the gateway asks too, to have a Worker's handler called. One
engine is connected at a time, a later one takes its place. The gateway outlives the engine and goes
on with the policies it has; the next engine puts all of them again and removes what is no more.

Bodies that handlers see are whole, not streams: `MAX_BODY` each way.
"""

from typing import TypeAlias

import msgspec

from atoll.network.policy import Handler, SandboxPolicy
from atoll.wire.objects import MAX_OUTBOUND_BODY

VERSION = 3
"""Of this protocol. An engine ends a gateway that speaks another one and starts its own."""

MAX_BODY = MAX_OUTBOUND_BODY
"""Bytes of a request's or an answer's body that passes a handler."""

MAX_FRAME = MAX_BODY + (1 << 20)
"""Bytes of one frame: a body with its head, or a policy with its lists."""

LENGTH = 4
"""Bytes of the length before each frame."""

Fields: TypeAlias = list[tuple[str, str]]
"""Header fields in order, Latin-1."""


class Authority(msgspec.Struct, frozen=True):
    """The certificate authority of one sandbox, both in PEM."""

    certificate: str
    key: str

    def __repr__(self) -> str:
        return "Authority(...)"


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a sandbox's log (JSON): a name, connection or request, when it had ended.

    Args:
        time: seconds since the epoch, when it began.
        protocol: dns, http, https, tls, tcp.
        host: what was asked for; never with a secret.
        address: where it went; for dns the answers, comma-separated.
        port: likewise; 0 for dns.
        verdict: allowed, refused, handled, or failed (allowed, but it could not be done).
        rule: what decided, or why it failed.
        method: of a request.
        path: of a request, without its query.
        status: of its answer.
        bytes_up: bytes that left the sandbox.
        bytes_down: bytes that came.
        ms: how long it took, in milliseconds.
        dropped: lines that were not written before this one: the sandbox made too many.
    """

    time: float
    protocol: str
    verdict: str
    rule: str
    host: str = ""
    address: str = ""
    port: int = 0
    method: str = ""
    path: str = ""
    status: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    ms: float = 0.0
    dropped: int = 0

    @property
    def kind(self) -> tuple[str, int, str]:
        """What makes two of the same verdict the same: where to, and why."""
        return self.host or self.address, self.port, self.rule


# Questions of the engine


class Configure(msgspec.Struct, frozen=True, kw_only=True, tag="configure"):
    """What holds for all sandboxes.

    Args:
        nameservers: addresses that are asked for names, in this order.
    """

    nameservers: tuple[str, ...]


class Put(msgspec.Struct, frozen=True, kw_only=True, tag="put"):
    """Add a sandbox, or change its policy: from the answer on, decisions are made by the new one.

    Connections that the new policy would refuse are cut. Older versions are ignored.

    Args:
        policy: `host_ref` names the sandbox, `addresses` are its alone.
        log: name of its log file: letters, digits, ``-``, ``_``; may be shared by later containers
            of the same sandbox, so that one log tells of all.
        authority: needed where TLS is opened (`SandboxPolicy.intercept`, secrets).
    """

    policy: SandboxPolicy
    log: str
    authority: Authority | None = None


class Remove(msgspec.Struct, frozen=True, kw_only=True, tag="remove"):
    """Forget a sandbox and cut its connections. Its log stays; the engine removes that."""

    host_ref: str


class Take(msgspec.Struct, frozen=True, kw_only=True, tag="take"):
    """Serve listeners in a sandbox's own network: whatever comes there is that sandbox's.

    They were sent to the gateway's second socket before, in a datagram with the name of the sandbox:
    connections, names, names by UDP. Earlier ones of the same sandbox are let go of.
    """

    host_ref: str


class List(msgspec.Struct, frozen=True, kw_only=True, tag="list"):
    """Ask which sandboxes are known."""


class Status(msgspec.Struct, frozen=True, kw_only=True, tag="status"):
    """Ask how the gateway does."""


class Pins(msgspec.Struct, frozen=True, kw_only=True, tag="pins"):
    """Ask which addresses a sandbox may use for which names now."""

    host_ref: str


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag="stop"):
    """End: cut everything. The engine does so only when no sandbox is left, or to replace it."""


# Answers of the gateway


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """It is done."""


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """It could not be done."""

    message: str


class Listed(msgspec.Struct, frozen=True, kw_only=True, tag="listed"):
    """Which sandboxes are known: host_ref → version of the policy in force."""

    versions: dict[str, int]


class SandboxStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What one sandbox has open, and counts since it was put first."""

    connections: int
    allowed: int
    refused: int
    handled: int
    bytes_up: int
    bytes_down: int


class StatusReport(msgspec.Struct, frozen=True, kw_only=True, tag="report"):
    """How the gateway does. `uptime` in seconds; `sandboxes` by host_ref."""

    version: int
    pid: int
    uptime: float
    sandboxes: dict[str, SandboxStatus]


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """An address that was given for a name, and the seconds it is good for still."""

    name: str
    address: str
    seconds: float


class PinList(msgspec.Struct, frozen=True, kw_only=True, tag="pinned"):
    """All pins of a sandbox."""

    pins: list[Pin]


# The gateway asks for a handler


class Call(msgspec.Struct, frozen=True, kw_only=True, tag="call"):
    """Have a Worker's handler answer a request of a sandbox.

    Args:
        key: of the sandbox, "namespace/id".
        host_ref: its container.
        handler: which function.
        method: of the request.
        url: absolute; its host is the one that was proved.
        headers: as sent; secrets are placeholders in it.
        body: all of it.
    """

    key: str
    host_ref: str
    handler: Handler
    method: str
    url: str
    headers: Fields
    body: bytes = b""


class GivenUp(msgspec.Struct, frozen=True, kw_only=True, tag="given_up"):
    """Nobody waits for the answer to this call any more."""

    call: int


class Noticed(msgspec.Struct, frozen=True, kw_only=True, tag="noticed"):
    """What a sandbox was refused, the first of its kind. Nobody answers."""

    host_ref: str
    decision: Decision


class Answered(msgspec.Struct, frozen=True, kw_only=True, tag="answered"):
    """The handler's answer."""

    status: int
    headers: Fields
    body: bytes = b""


class Forward(msgspec.Struct, frozen=True, kw_only=True, tag="forward"):
    """The handler lets the request out, changed or not: to `url` with these headers.

    It is the Worker's word, which is above the lists; ranges that nobody may reach stay closed.

    Args:
        body: None: the request's own.
    """

    method: str
    url: str
    headers: Fields
    body: bytes | None = None


class Unanswered(msgspec.Struct, frozen=True, kw_only=True, tag="unanswered"):
    """The handler raised, took too long, or there is no Worker. `reason` goes to the log."""

    reason: str


Question: TypeAlias = Configure | Put | Take | Remove | List | Status | Pins | Stop
Reply: TypeAlias = Done | Failed | Listed | StatusReport | PinList
HandlerAnswer: TypeAlias = Answered | Forward | Unanswered


class ToGateway(msgspec.Struct, frozen=True, kw_only=True):
    """A frame of the engine: a question, or the answer to a `Call`."""

    number: int
    message: Question | HandlerAnswer


class ToEngine(msgspec.Struct, frozen=True, kw_only=True):
    """A frame of the gateway: an answer, or a `Call`, whose numbers are its own."""

    number: int
    message: Reply | Call | GivenUp | Noticed


_to_gateway = msgspec.msgpack.Decoder(ToGateway)
_to_engine = msgspec.msgpack.Decoder(ToEngine)
_encoder = msgspec.msgpack.Encoder()


def frame(message: ToGateway | ToEngine) -> bytes:
    """Return *message* with its length.

    Raises:
        ValueError: it is larger than `MAX_FRAME`.
    """
    data = _encoder.encode(message)
    if len(data) > MAX_FRAME:
        raise ValueError(f"a message of {len(data)} bytes is too large")
    return len(data).to_bytes(LENGTH, "big") + data


def frame_length(head: bytes) -> int:
    """Return how many bytes follow.

    Raises:
        ValueError: more than `MAX_FRAME`.
    """
    length = int.from_bytes(head, "big")
    if length > MAX_FRAME:
        raise ValueError(f"a message of {length} bytes is too large")
    return length


def read_to_gateway(data: bytes) -> ToGateway:
    """Return a frame of the engine; raise `msgspec.DecodeError` where it is none."""
    return _to_gateway.decode(data)


def read_to_engine(data: bytes) -> ToEngine:
    """Return a frame of the gateway; raise `msgspec.DecodeError` where it is none."""
    return _to_engine.decode(data)
