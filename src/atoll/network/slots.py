"""Network slots: prepared ahead, given to one sandbox, removed after it and never given to another.

Nothing here remembers what the kernel does not hold too: a slot in use carries its host_ref as
the alias of its interface, and its mode is a set in the packet filter. A new slot is closed.
"""

import asyncio
import ipaddress
import secrets
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import structlog

from atoll.errors import ContainerUnavailableError, InvalidConfigError, SandboxError
from atoll.host.mounts import stop_propagation
from atoll.host.tasks import Tasks
from atoll.host.threads import run_to_end
from atoll.network import conntrack, forwarding, plan, resolvers, rules
from atoll.network.filter import Mode, PacketFilter
from atoll.network.links import HostLink, Links
from atoll.network.rules import Filter, Redirect
from atoll.network_settings import NetworkSettings

BASE = Path("/run/atoll/netns")
"""Where namespaces are kept, of all engines of the host: names of slots are unique on it."""

_log = structlog.get_logger(__name__)


class Slot(NamedTuple):
    """The network of one sandbox. `address6` is empty without IPv6."""

    number: int
    netns: Path
    address: str
    address6: str
    gateway: str
    nameservers: tuple[str, ...]

    @property
    def addresses(self) -> tuple[str, ...]:
        """All of its addresses."""
        return (self.address, self.address6) if self.address6 else (self.address,)


class NetworkSlots:
    """Gives each sandbox a network namespace of its own. All calls may be repeated.

    Args:
        settings: addresses, resolvers and how many slots are kept ready.
        engine_id: names the packet filter and the slots of this engine.
    """

    closes = True
    by_gateway = False
    way_out = True

    def __init__(self, settings: NetworkSettings, engine_id: str, *, base: Path = BASE) -> None:
        self._settings = settings
        self._plan = plan.Plan(settings.cidr, settings.cidr6)
        self._base = base
        self._engine_id = engine_id
        self._links = Links(self._plan, plan.group(engine_id), base)
        self._filter = PacketFilter(self._rules((), None, six=False))
        self._nameservers: tuple[str, ...] = ()
        self._used: dict[str, Slot] = {}
        self._ready: deque[int] = deque()
        self._next = secrets.randbelow(self._plan.slots)
        self._making = Tasks()
        self._closing = False

    async def open(self, *, log: int | None = None) -> None:
        """Put the packet filter in force, find slots that are in use, prepare others.

        Slots that an earlier engine had prepared but not given away are removed.

        Args:
            log: group of the netlink log that is told of connections; None: none is.

        Raises:
            InvalidConfigError: the range of addresses is in use on this host.
            ContainerUnavailableError: the host refused (reason "network").
        """
        self._closing = False
        self._base.mkdir(mode=0o711, parents=True, exist_ok=True)
        await run_to_end(stop_propagation, self._base)
        await self._refuse_overlap()
        self._nameservers = self._settings.nameservers or resolvers.host_nameservers()
        if not self._nameservers:
            _log.warning("sandboxes have no DNS: set network.nameservers")
        forwarding.enable()
        six = await run_to_end(self._decide_ipv6)
        rate = self._settings.bandwidth_mbit * 125_000
        group = plan.group(self._engine_id)
        self._links = Links(self._plan, group, self._base, six=six, rate=rate)
        found = await run_to_end(self._links.find)
        asked = dict.fromkeys((*self._nameservers, *resolvers.all_nameservers()))
        self._filter = PacketFilter(self._rules(tuple(asked), log, six=six))
        await self._filter.open([plan.interface(link.number) for link in found if link.host_ref])
        for link in found:
            if link.host_ref:
                self._used[link.host_ref] = self._slot(link)
            else:
                await run_to_end(self._links.remove, link.number)
        self._refill()

    async def close(self) -> None:
        """Remove prepared slots, and the packet filter unless a slot is still in use."""
        self._closing = True
        await self._making.finish()
        while self._ready:
            await run_to_end(self._links.remove, self._ready.popleft())
        await self._filter.close(remove=not self._used)

    async def acquire(self, host_ref: str) -> Slot:
        """Return the slot of *host_ref*; give it a closed one if it has none.

        Raises:
            ContainerUnavailableError: none could be made (reason "network").
        """
        if slot := self._used.get(host_ref):
            return slot
        while not self._ready:
            # Shielded: a slot whose taker went away goes to the next one.
            await asyncio.shield(self._prepare())
        number = self._ready.popleft()
        slot = self._used[host_ref] = self._slot(self._links.planned(number, host_ref))
        try:
            await run_to_end(self._links.label, number, host_ref)
        except Exception as error:
            await self.release(host_ref)
            raise _unavailable(error) from error
        self._refill()
        return slot

    async def release(self, host_ref: str) -> None:
        """Take the slot away and remove it; nothing happens when there is none."""
        if slot := self._used.get(host_ref):
            # Closed first: the name of its interface must not keep a mode for the next one.
            await self._filter.set_mode(plan.interface(slot.number), "closed")
            await run_to_end(self._links.remove, slot.number)
            await run_to_end(conntrack.forget, slot.addresses)
            self._used.pop(host_ref, None)

    async def adopt(self, host_refs: Iterable[str]) -> None:
        """Keep the slots of these sandboxes and release all others."""
        for host_ref in set(self._used) - set(host_refs):
            await self.release(host_ref)

    async def traffic(self, host_ref: str) -> tuple[int, int]:
        """Return the bytes that left a slot and those that came, since it was made."""
        slot = self._used.get(host_ref)
        return (0, 0) if slot is None else await run_to_end(self._links.traffic, slot.number)

    async def list(self) -> list[str]:
        """Return the host_ref of every slot in use."""
        return sorted(self._used)

    def mode(self, host_ref: str) -> Mode:
        """Return how a slot reaches the internet.

        Raises:
            KeyError: *host_ref* has no slot.
        """
        return self._filter.mode(plan.interface(self._used[host_ref].number))

    async def set_mode(self, host_ref: str, mode: Mode) -> None:
        """Change how a slot reaches the internet, open connections included. Nothing restarts.

        Raises:
            KeyError: *host_ref* has no slot.
            ContainerUnavailableError: the host refused (reason "network").
        """
        slot = self._used[host_ref]
        if mode != self.mode(host_ref):
            await self._filter.set_mode(plan.interface(slot.number), mode)
            await run_to_end(conntrack.forget, slot.addresses)

    async def set_redirect(self, redirect: Redirect | None) -> None:
        """Tell where the gateway listens; None: nowhere, so slots that are gated reach nothing."""
        await self._filter.set_redirect(redirect)

    def _slot(self, link: HostLink) -> Slot:
        return Slot(
            number=link.number,
            netns=self._links.netns(link.number),
            address=plan.sandbox_address(link.gateway),
            address6=plan.sandbox_address(link.gateway6) if link.gateway6 else "",
            gateway=link.gateway,
            # Whom it asks does not matter: the gateway answers for everybody.
            nameservers=self._nameservers or (link.gateway,),
        )

    def _refill(self) -> None:
        missing = self._settings.prepared - len(self._ready) - len(self._making)
        for _ in range(0 if self._closing else missing):
            self._prepare().add_done_callback(_report)

    def _prepare(self) -> asyncio.Task[None]:
        return self._making.begin(self._make(), name="network slot")

    async def _make(self) -> None:
        try:
            number = await run_to_end(self._links.make, self._candidates())
        except Exception as error:
            raise _unavailable(error) from error
        self._ready.append(number)

    def _candidates(self) -> Iterator[int]:
        """Yield every number once, after the last one taken: none is used again soon.

        Connections that the host still tracks for an address have then timed out.
        """
        for _ in range(self._plan.slots):
            self._next = (self._next + 1) % self._plan.slots
            yield self._next

    def _rules(self, resolvers: tuple[str, ...], log: int | None, *, six: bool) -> Filter:
        return Filter(
            table=rules.table_name(self._engine_id),
            group=plan.group(self._engine_id),
            cidr=self._settings.cidr,
            cidr6=self._settings.cidr6 if six else None,
            resolvers=resolvers,
            opened=self._settings.private_ranges,
            log=log,
            max_flows=self._settings.max_connections,
        )

    def _decide_ipv6(self) -> bool:
        """Return whether slots have IPv6, and have the host forward it where it is told to."""
        wanted = self._settings.ipv6
        if wanted == "off" or not self._links.has_way_out6():
            if wanted == "on":
                _log.warning("sandboxes have no IPv6: the host has no default route for it")
            return False
        if wanted == "on":
            forwarding.enable6()
        return forwarding.enabled6()

    async def _refuse_overlap(self) -> None:
        for address, name in (await run_to_end(self._links.foreign_networks)).items():
            network = ipaddress.ip_interface(address).network
            if network.overlaps(
                self._plan.network if network.version == 4 else self._plan.network6
            ):
                setting = "cidr" if network.version == 4 else "cidr6"
                raise InvalidConfigError(
                    f"network.{setting} overlaps {address} of {name}",
                    context={"address": address, "interface": name},
                    suggestion=f"set network.{setting} to a private range this site does not use",
                )


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        _log.warning("no network slot could be prepared", error=str(error))


def _unavailable(error: Exception) -> SandboxError:
    if isinstance(error, SandboxError):
        return error
    return ContainerUnavailableError(
        f"the sandbox's network cannot be made: {error}", context={"reason": "network"}
    )
