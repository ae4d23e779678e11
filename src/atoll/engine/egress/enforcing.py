"""Makes policies so: the gateway is told first, then the packet filter lets packets to it.

A slot is closed when it is made, so whatever fails on the way, nothing leaves the sandbox. What gets
stricter is closed in the packet filter before the gateway is asked anything; what gets looser is
opened after it knows. Without a gateway sandboxes with a policy reach nothing; those without one go
on, and ask the host's resolvers.
"""

import asyncio
import hashlib
from contextlib import suppress
from weakref import WeakValueDictionary

import structlog

from atoll.engine.egress import effective
from atoll.engine.egress.logs import LogReader
from atoll.engine.egress.stored import Egress
from atoll.engine.parts import Gateway, Networks, Ranged
from atoll.errors import NotSupportedByRuntimeError, SandboxError
from atoll.network.gateway import log
from atoll.network.gateway.protocol import Authority, Put, SandboxStatus
from atoll.network.policy import SandboxPolicy, Secret
from atoll.network_settings import NetworkSettings
from atoll.wire.egress import EgressDefaults

_log = structlog.get_logger(__name__)


class Enforcing:
    """All policies of an engine that are in force.

    Args:
        networks: the slots.
        settings: of the node's network.
        gateway: the node's; None: this level has none.
    """

    def __init__(
        self, networks: Networks, settings: NetworkSettings, gateway: Gateway | None
    ) -> None:
        self.gateway = gateway
        self._networks = networks
        self._settings = settings
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._telling: dict[str, asyncio.Task[None]] = {}
        self._enforced: dict[str, tuple[SandboxPolicy, Authority | None]] = {}

    def policy(
        self,
        key: tuple[str, str],
        own: Egress,
        defaults: EgressDefaults,
        *,
        internet: bool,
        secrets: tuple[Secret, ...] = (),
    ) -> SandboxPolicy:
        """Return what holds for a sandbox, wherever it runs.

        Where nothing has a way out it says so, and not what was wished.
        """
        internet = internet and self._networks.way_out
        return effective.policy(
            key, own, defaults, self._settings, internet=internet, secrets=secrets
        )

    def check_internet(self, wanted: bool | None) -> None:
        """Refuse internet that was asked for and cannot be given; *wanted*: what a caller said.

        Raises:
            NotSupportedByRuntimeError: sandboxes have loopback only here.
        """
        if wanted and not self._networks.way_out:
            raise NotSupportedByRuntimeError(
                "enable_internet=True cannot be given: sandboxes have loopback only here",
                suggestion="`atoll doctor` tells what their network needs; leave the option out to go"
                " without",
            )

    def check(self, wanted: SandboxPolicy) -> None:
        """Refuse a policy that this level cannot hold a sandbox to.

        Raises:
            NotSupportedByRuntimeError: connections are to be chosen, and there is no gateway; or
                refused, and nothing here can.
        """
        if not self._networks.closes and effective.mode(wanted) != "direct":
            raise NotSupportedByRuntimeError(
                "what a sandbox reaches is not decided by this engine, but by the network around it",
                context={"sandbox": wanted.key},
                suggestion="leave enable_internet, hosts, handlers and secrets away, and close that "
                "network: on Kubernetes see cluster.enforces_policies",
            )
        if self.gateway or effective.mode(wanted) != "gated":
            return
        ranged = isinstance(self._networks, Ranged)
        if ranged and effective.by_address(wanted):
            return
        others = ", or name addresses and ranges only" if ranged else ""
        raise NotSupportedByRuntimeError(
            "hosts, handlers and secrets need an egress gateway, which this engine has not",
            context={"sandbox": wanted.key},
            suggestion=f"use enable_internet=False, which cuts off everything{others}; `atoll doctor`"
            " tells what a gateway needs",
        )

    def closes_late(self, wanted: SandboxPolicy) -> bool:
        """Whether what runs already may go on reaching what *wanted* closes for a while.

        So it is where the network around the engine enforces policies: it says nothing when one that
        was changed is in force.
        """
        return isinstance(self._networks, Ranged) and effective.mode(wanted) != "direct"

    async def enforce(
        self,
        host_ref: str,
        wanted: SandboxPolicy,
        authority: Authority | None = None,
    ) -> None:
        """Have *wanted* in force for the container *host_ref* when this returns.

        Raises:
            NotSupportedByRuntimeError: as `check`.
            ContainerUnavailableError: packet filter or gateway refuse (reason "network"). Then
                nothing is open that *wanted* closes.
        """
        self.check(wanted)
        async with self._lock(host_ref):
            if self._enforced.get(host_ref) == (wanted, authority):
                return
            self._enforced.pop(host_ref, None)
            slot = await self._networks.acquire(host_ref)
            mode = effective.mode(wanted)
            if mode == "gated" and isinstance(self._networks, Ranged):
                await self._networks.restrict(host_ref, wanted)
            elif mode != "direct":
                await self._networks.set_mode(host_ref, mode)
            if self.gateway:
                told = effective.placed(wanted, host_ref, slot.addresses)
                put = Put(policy=told, log=log_name(wanted.key), authority=authority)
                await self._tell(self.gateway, put, needed=mode == "gated")
            if mode == "direct":
                await self._networks.set_mode(host_ref, mode)
            self._enforced[host_ref] = wanted, authority

    async def decided(self, host_ref: str) -> SandboxStatus | None:
        """Return what the gateway has decided for a container; None: it cannot be asked now."""
        if self.gateway and self.gateway.ready:
            with suppress(SandboxError):
                return (await self.gateway.status()).sandboxes.get(host_ref)
        return None

    def log_reader(self, key: tuple[str, str], after: str) -> LogReader:
        """Return a reader of the log of a sandbox, from a cursor on."""
        folders = {"g": self.gateway.logs, "d": self.gateway.direct.folder} if self.gateway else {}
        return LogReader(folders, log_name("/".join(key)), after)

    async def erase(self, key: tuple[str, str]) -> None:
        """Remove the log of a sandbox that is destroyed, and what is remembered of its refusals."""
        if self.gateway:
            self.gateway.forgotten("/".join(key))
            name = log_name("/".join(key))
            await self.gateway.direct.remove(name)
            await asyncio.to_thread(log.remove, self.gateway.logs, name)

    async def forget(self, host_ref: str) -> None:
        """A container is no more; its slot is removed by whoever made it."""
        async with self._lock(host_ref):
            self._enforced.pop(host_ref, None)
            if task := self._telling.pop(host_ref, None):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            if self.gateway:
                await self.gateway.remove(host_ref)

    def _lock(self, host_ref: str) -> asyncio.Lock:
        return self._locks.setdefault(host_ref, asyncio.Lock())

    def begin_settling(self) -> None:
        """Have the gateway forget sandboxes of earlier engines: all that run were told by now."""
        if self.gateway:
            self._telling[""] = asyncio.create_task(_settle(self.gateway), name="egress settling")

    async def close(self) -> None:
        """Stop telling; what is in force stays."""
        telling = list(self._telling.values())
        for task in telling:
            task.cancel()
        await asyncio.gather(*telling, return_exceptions=True)

    async def _tell(self, gateway: Gateway, put: Put, *, needed: bool) -> None:
        """Tell the gateway; a sandbox that does not depend on it does not wait for its start."""
        if needed or gateway.ready:
            try:
                await gateway.put(put)
            except SandboxError:
                if needed:
                    raise
            return
        host_ref = put.policy.host_ref
        if before := self._telling.pop(host_ref, None):
            before.cancel()
        task = asyncio.create_task(_tell_later(gateway, put), name="egress policy")
        self._telling[host_ref] = task


async def _settle(gateway: Gateway) -> None:
    with suppress(SandboxError):
        await gateway.settle()


async def _tell_later(gateway: Gateway, put: Put) -> None:
    try:
        await gateway.put(put)
    except SandboxError as error:  # the keeper goes on trying and then tells all
        _log.warning("the egress gateway is not there yet", error=str(error))


def log_name(key: str) -> str:
    """Return the name of a sandbox's log: of all its lives, and of no other sandbox."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]
