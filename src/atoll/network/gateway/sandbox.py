"""What the gateway knows of one sandbox: its policy, its pins, what it has open, its counts."""

import asyncio
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from atoll.host.budget import Budget
from atoll.network.gateway import held, tunnel
from atoll.network.gateway.bucket import Bucket
from atoll.network.gateway.injection import redact
from atoll.network.gateway.log import Log
from atoll.network.gateway.news import News
from atoll.network.gateway.pins import PinTable
from atoll.network.gateway.protocol import (
    Authority,
    Call,
    Decision,
    HandlerAnswer,
    Noticed,
    Put,
    SandboxStatus,
)
from atoll.network.gateway.turns import Turns
from atoll.network.policy import Outbound, SandboxPolicy, Verdict, decide

QUERY_RATE, QUERY_BURST = 200.0, 400
"""Names a second that are looked up on average, and at once."""

MAX_QUERIES = 64
"""Names that are looked up at the same time."""

MAX_CALLS = 32
"""Handlers that are waited for at the same time: one that hangs keeps nobody else's waiting."""

INVENTED = ipaddress.IPv4Network("198.18.0.0/15")
"""Addresses for names that only a handler knows. They are reserved for laboratories (RFC 2544): no
packet to one leaves the host, and a connection to one without its handler is refused."""

MAX_INVENTED = 4_096
"""Names with an invented address; the one used least recently gives way."""


class Cuttable(Protocol):
    """A connection of the sandbox."""

    def outbound(self) -> Outbound | None:
        """Return what it was let out for; None: that is not known yet."""

    def cut(self) -> None:
        """End it at once."""


class Sandbox:
    """One sandbox.

    Args:
        put: its policy.
        logs: folder of all logs.
        bodies: what all sandboxes hold of bodies for handlers.
        pieces: likewise of large pieces in tunnels.
        notice: told of refusals, the first of each kind.
    """

    def __init__(
        self,
        put: Put,
        logs: Path,
        bodies: Budget,
        pieces: Budget,
        notice: Callable[[Noticed], None],
    ) -> None:
        self._notice, self._news = notice, News()
        self._logs = logs
        self._log = Log(logs, put.log)
        self.policy: SandboxPolicy = put.policy
        self.authority: Authority | None = put.authority
        self.pins = PinTable()
        self.connections: set[Cuttable] = set()
        self.bodies = Budget(held.MAX_OF_ONE, within=bodies)
        self.pieces = Budget(tunnel.MAX_OF_ONE, within=pieces)
        self.turns = Turns()
        self._calls = asyncio.Semaphore(MAX_CALLS)
        self.queries = 0
        self._query_bucket = Bucket(QUERY_RATE, QUERY_BURST)
        self._invented: OrderedDict[str, str] = OrderedDict()
        self._next = 0
        self._verdicts = {"allowed": 0, "refused": 0, "handled": 0, "failed": 0}
        self._up = self._down = 0

    def change(self, put: Put) -> None:
        """Take a newer policy and cut what it would not let out.

        Of what was let out when there was nothing to decide, nobody knows what it is for.
        """
        unknown = self.policy.direct and not put.policy.direct
        before, self.policy, self.authority = self.policy, put.policy, put.authority
        if put.log != self._log.name:
            self._log.close()
            self._log = Log(self._logs, put.log)
        for connection in list(self.connections):
            wanted = connection.outbound()
            if unknown or (wanted and _cuts(decide(before, wanted), self.decide(wanted))):
                connection.cut()

    def close(self) -> None:
        """Cut everything."""
        for connection in list(self.connections):
            connection.cut()
        self._log.close()

    def decide(self, wanted: Outbound) -> Verdict:
        """Decide by the policy in force."""
        return decide(self.policy, wanted)

    def names(self, address: str) -> tuple[str, ...]:
        """Return the names for which the sandbox was given *address*."""
        return self.pins.names(address, time.monotonic())

    def may_ask(self) -> bool:
        """Tell whether another name may be looked up now."""
        return self.queries < MAX_QUERIES and self._query_bucket.take(time.monotonic())

    async def in_turn(
        self, ask: Callable[[Call], Awaitable[HandlerAnswer]], call: Call
    ) -> HandlerAnswer:
        """Have a handler called when it is this call's turn."""
        async with self._calls:
            return await ask(call)

    def invent(self, name: str) -> str:
        """Return the address that stands for *name*, which only a handler knows."""
        address = self._invented.pop(name, None) or self._unused()
        self._invented[name] = address
        while len(self._invented) > MAX_INVENTED:
            self._invented.popitem(last=False)
        return address

    def note(self, decision: Decision) -> None:
        """Count a decision and write it to the log, without secrets."""
        self._verdicts[decision.verdict] += 1
        self._up += decision.bytes_up
        self._down += decision.bytes_down
        told = self._without_secrets(decision)
        self._log.write(told)
        if told.verdict == "refused" and self._news.has(told.kind, time.monotonic()):
            self._notice(Noticed(host_ref=self.policy.host_ref, decision=told))

    def status(self) -> SandboxStatus:
        """Return what it has open, and its counts."""
        return SandboxStatus(
            connections=len(self.connections),
            allowed=self._verdicts["allowed"] + self._verdicts["failed"],
            refused=self._verdicts["refused"],
            handled=self._verdicts["handled"],
            bytes_up=self._up,
            bytes_down=self._down,
        )

    def _without_secrets(self, decision: Decision) -> Decision:
        secrets = self.policy.secrets
        if not secrets:
            return decision
        return replace(
            decision,
            host=redact(decision.host, secrets),
            path=redact(decision.path, secrets),
            rule=redact(decision.rule, secrets),
        )

    def _unused(self) -> str:
        """Return the next address; it comes again after 131,070 others, when no pin has it."""
        self._next = self._next % (INVENTED.num_addresses - 2) + 1
        return str(INVENTED[self._next])


def _cuts(before: Verdict, now: Verdict) -> bool:
    """Tell whether what was let out is not any more, or not without being looked at."""
    looked_at = now.action == "handle" or (now.intercept and not before.intercept)
    return now.action == "refuse" or (before.action == "allow" and looked_at)
