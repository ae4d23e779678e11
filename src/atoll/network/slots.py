"""Network slots: prepared ahead, given to one sandbox, removed after it and never given to another.

Nothing here remembers what the kernel does not hold too: a slot in use carries its host_ref as
the alias of its interface, and who has no internet is a set in the packet filter.
"""

import asyncio
import ipaddress
import json
import secrets
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import structlog

from atoll.errors import ContainerUnavailableError, InvalidConfigError, SandboxError
from atoll.host import process
from atoll.host.mounts import stop_propagation
from atoll.host.threads import run_to_end
from atoll.network import foreign, plan, resolvers, rules
from atoll.network.links import Links
from atoll.settings import NetworkSettings

BASE = Path("/run/atoll/netns")
"""Where namespaces are kept, of all engines of the host: names of slots are unique on it."""

GUARD_INTERVAL = 5.0
"""Seconds between two looks whether the packet filter is still there (4 ms each)."""

_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")

_log = structlog.get_logger(__name__)


class Slot(NamedTuple):
    """The network of one sandbox."""

    number: int
    netns: Path
    address: str
    gateway: str
    nameservers: tuple[str, ...]


class NetworkSlots:
    """Gives each sandbox a network namespace of its own. All calls may be repeated.

    Args:
        settings: addresses, resolvers and how many slots are kept ready.
        engine_id: names the packet filter and the slots of this engine.
    """

    def __init__(self, settings: NetworkSettings, engine_id: str, *, base: Path = BASE) -> None:
        self._settings = settings
        self._plan = plan.Plan(settings.cidr)
        self._group = plan.group(engine_id)
        self._table = rules.table_name(engine_id)
        self._base = base
        self._links = Links(self._plan, self._group, base)
        self._nameservers: tuple[str, ...] = ()
        self._used: dict[str, Slot] = {}
        self._ready: deque[int] = deque()
        self._offline: set[str] = set()
        self._next = secrets.randbelow(self._plan.slots)
        self._making: set[asyncio.Task[None]] = set()
        self._closing = False
        self._guard: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Put the packet filter in force, find slots that are in use, prepare others.

        Slots that an earlier engine had prepared but not given away are removed.

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
        _enable_forwarding()
        self._offline = await self._read_offline()
        await self._load(self._ruleset())
        await self._warn_of_refusals()
        for link in await run_to_end(self._links.find):
            if link.host_ref:
                self._used[link.host_ref] = self._slot(link.number, link.gateway)
            else:
                await run_to_end(self._links.remove, link.number)
        self._refill()
        self._guard = asyncio.create_task(self._keep_filter(), name="packet filter guard")

    async def close(self) -> None:
        """Remove prepared slots, and the packet filter unless a slot is still in use."""
        self._closing = True
        if self._guard:
            self._guard.cancel()
            await asyncio.gather(self._guard, return_exceptions=True)
        await asyncio.gather(*self._making, return_exceptions=True)
        while self._ready:
            await run_to_end(self._links.remove, self._ready.popleft())
        if not self._used:
            await self._load(rules.remove_table(self._table))

    async def acquire(self, host_ref: str) -> Slot:
        """Return the slot of *host_ref*; give it one if it has none.

        Raises:
            ContainerUnavailableError: none could be made (reason "network").
        """
        if slot := self._used.get(host_ref):
            return slot
        while not self._ready:
            # Shielded: a slot whose taker went away goes to the next one.
            await asyncio.shield(self._prepare())
        number = self._ready.popleft()
        slot = self._used[host_ref] = self._slot(number, self._plan.gateway(number))
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
            await run_to_end(self._links.remove, slot.number)
            await self._set_offline(slot.number, offline=False)
            self._used.pop(host_ref, None)

    async def adopt(self, host_refs: Iterable[str]) -> None:
        """Keep the slots of these sandboxes and release all others."""
        for host_ref in set(self._used) - set(host_refs):
            await self.release(host_ref)

    async def list(self) -> list[str]:
        """Return the host_ref of every slot in use."""
        return sorted(self._used)

    async def set_internet(self, host_ref: str, allowed: bool) -> None:
        """Open or close the way out, open connections included. Nothing inside is restarted.

        Raises:
            KeyError: *host_ref* has no slot.
        """
        await self._set_offline(self._used[host_ref].number, offline=not allowed)

    def _slot(self, number: int, gateway: str) -> Slot:
        return Slot(
            number=number,
            netns=self._links.netns(number),
            address=plan.sandbox_address(gateway),
            gateway=gateway,
            nameservers=self._nameservers,
        )

    def _refill(self) -> None:
        missing = self._settings.prepared - len(self._ready) - len(self._making)
        for _ in range(0 if self._closing else missing):
            self._prepare().add_done_callback(_report)

    def _prepare(self) -> asyncio.Task[None]:
        task = asyncio.create_task(self._make(), name="network slot")
        self._making.add(task)
        task.add_done_callback(self._making.discard)
        return task

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

    async def _set_offline(self, number: int, *, offline: bool) -> None:
        name = plan.interface(number)
        if offline == (name in self._offline):
            return
        await self._load(rules.set_offline(self._table, name, offline=offline))
        (self._offline.add if offline else self._offline.discard)(name)

    def _ruleset(self) -> str:
        return rules.ruleset(
            self._table, self._group, self._settings.cidr, self._nameservers, sorted(self._offline)
        )

    async def _load(self, script: str) -> None:
        done = await _nft(("-f", "-"), script.encode())
        if done.code:
            raise _unavailable(RuntimeError(f"nft: {done.message}"))

    async def _read_offline(self) -> set[str]:
        """Return who had no internet under an engine that was killed."""
        done = await _nft(("-j", "list", "set", "inet", self._table, "offline"))
        if done.code:
            return set()
        items = json.loads(done.stdout)["nftables"]
        return {name for item in items for name in item.get("set", {}).get("elem", ())}

    async def _keep_filter(self) -> None:
        """Load the filter again when somebody flushed the host's whole ruleset.

        A restart of the distribution's nftables service does that.
        """
        while True:
            await asyncio.sleep(GUARD_INTERVAL)
            try:
                done = await _nft(("list", "chain", "inet", self._table, "to_host"))
                if done.code:
                    _log.warning("the packet filter was removed by somebody and is loaded again")
                    await self._load(self._ruleset())
            except (SandboxError, OSError) as error:
                _log.warning("the packet filter cannot be looked after", error=str(error))

    async def _warn_of_refusals(self) -> None:
        done = await _nft(("-j", "list", "chains"))
        chains = [] if done.code else foreign.forward_refusals(json.loads(done.stdout))
        if chains:
            _log.warning(
                "other packet filters keep sandboxes from the internet",
                chains=chains,
                suggestion=foreign.SUGGESTION,
            )

    async def _refuse_overlap(self) -> None:
        for name, address in (await run_to_end(self._links.foreign_networks)).items():
            if ipaddress.IPv4Interface(address).network.overlaps(self._plan.network):
                raise InvalidConfigError(
                    f"network.cidr {self._settings.cidr} overlaps {address} of {name}",
                    context={"cidr": self._settings.cidr, "interface": name},
                    suggestion="set network.cidr to a private range this site does not use",
                )


async def _nft(arguments: Sequence[str], script: bytes | None = None) -> process.Completed:
    try:
        return await process.run(("nft", *arguments), stdin=script)
    except FileNotFoundError as error:
        raise ContainerUnavailableError(
            "this host has no nft, so sandboxes cannot be kept apart",
            context={"reason": "network"},
            suggestion="install nftables",
        ) from error


def _enable_forwarding() -> None:
    if _FORWARDING.read_text().strip() == "0":
        _FORWARDING.write_text("1")
        _log.warning("IPv4 forwarding was off on this host and is on now", path=str(_FORWARDING))


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        _log.warning("no network slot could be prepared", error=str(error))


def _unavailable(error: Exception) -> SandboxError:
    if isinstance(error, SandboxError):
        return error
    return ContainerUnavailableError(
        f"the sandbox's network cannot be made: {error}", context={"reason": "network"}
    )
