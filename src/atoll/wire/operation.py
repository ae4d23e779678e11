"""What an operation of the native API is. The operations themselves are in `atoll.wire.ops`."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from atoll.wire.base import Request, Result
from atoll.wire.keys import Scope

RequestT = TypeVar("RequestT", bound=Request)
ResultT = TypeVar("ResultT", bound=Result)

NAMESPACE = "/v2/namespaces/{namespace}"
SANDBOX = NAMESPACE + "/sandboxes/{id}"

MAX_HEAD = 16 * 1024
"""Bytes of request line and headers together that an engine takes; of trailers and of a chunk's
head as well."""


class Kind(StrEnum):
    """How an operation's bodies travel."""

    UNARY = "unary"
    STREAM = "stream"
    UPLOAD = "upload"
    DOWNLOAD = "download"


@dataclass(frozen=True, slots=True)
class Op(Generic[RequestT, ResultT]):
    """One operation: its route and the types of both sides."""

    name: str
    method: str
    path: str
    request: type[RequestT]
    result: type[ResultT]
    kind: Kind = Kind.UNARY
    scope: Scope = Scope.RUN
    shared: bool = False  # for keys of every namespace, though the path names none
    waits: bool = False  # for what comes by itself: ends with its caller, and when the engine stops

    @property
    def mutates(self) -> bool:
        """Whether the call may change something (and so takes an ``Idempotency-Key``)."""
        return self.scope is not Scope.READ and self.method != "GET" and not self.waits
