"""A request at the gate, for tests of what reads requests."""

from atoll.host.budget import Budget
from atoll.server.auth import Caller
from atoll.server.underway import Call
from atoll.wire.keys import Scope


def call(*, caller: Caller | None = None, budget: int = 1 << 30, idle: float = 5.0) -> Call:
    """Return the owner's call, or that of *caller*."""
    return Call("request", caller or Caller(Scope.ADMIN), Budget(budget), idle)
