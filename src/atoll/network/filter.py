"""The engine's table in the kernel: loads it, changes slots' modes, puts it back when it is gone.

One table (`rules`), always replaced as a whole in one transaction, so there is no moment without a
policy. What is in its sets outlives the engine; the next one reads it.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec
import structlog

from atoll.errors import ContainerUnavailableError, SandboxError
from atoll.host import process
from atoll.network import foreign, rules
from atoll.network.rules import Filter, Redirect

Mode: TypeAlias = Literal["closed", "direct", "gated"]
"""How a slot reaches the internet: not at all, translated by the kernel, by the gateway."""

GUARD_INTERVAL = 5.0
"""Seconds between two looks whether the packet filter is still there (4 ms each)."""

_log = structlog.get_logger(__name__)


class PacketFilter:
    """The table of one engine.

    Args:
        settings: what it is made of; modes are added here.
    """

    def __init__(self, settings: Filter) -> None:
        self._settings = settings
        self._modes: dict[str, Mode] = {}
        self._guard: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()

    @property
    def redirect(self) -> Redirect | None:
        """Where the gateway listens."""
        return self._settings.redirect

    async def open(self, existing: Sequence[str]) -> None:
        """Put the table in force. Slots have the modes that an earlier engine gave them.

        Args:
            existing: interfaces of slots; what the kernel remembers of others is forgotten, for
                their names will be those of new ones.

        Raises:
            ContainerUnavailableError: the host refused (reason "network").
        """
        for mode in ("direct", "gated"):
            members = await self._members(mode)
            self._modes |= dict.fromkeys(members & set(existing), mode)
        await self.reload()
        await self._warn_of_refusals()
        self._guard = asyncio.create_task(self._keep(), name="packet filter guard")

    async def close(self, *, remove: bool) -> None:
        """Look after it no longer; *remove* it unless a slot is still in use."""
        if self._guard:
            self._guard.cancel()
            await asyncio.gather(self._guard, return_exceptions=True)
        if remove:
            await _load(rules.remove_table(self._settings.table))

    def mode(self, name: str) -> Mode:
        """Return the mode of an interface."""
        return self._modes.get(name, "closed")

    async def set_mode(self, name: str, mode: Mode) -> None:
        """Change the mode of an interface, for packets of connections that exist too."""
        async with self._changing:
            before = self.mode(name)
            if mode == before:
                return
            self._note(name, mode)
            try:
                await self._enforce(name, mode)
            except BaseException:
                self._note(name, before)
                raise

    def _note(self, name: str, mode: Mode) -> None:
        self._modes.pop(name, None)
        if mode != "closed":
            self._modes[name] = mode

    async def _enforce(self, name: str, mode: Mode) -> None:
        try:
            await _load(rules.set_mode(self._settings.table, name, mode))
        except ContainerUnavailableError:  # somebody flushed the table, or there is none
            await self.reload()

    async def set_redirect(self, redirect: Redirect | None) -> None:
        """Tell where the gateway listens now."""
        async with self._changing:
            before = self._settings
            self._settings = msgspec.structs.replace(before, redirect=redirect)
            if before.redirect != redirect:
                await self.reload()

    async def reload(self) -> None:
        """Replace the table by what is known here."""
        by_mode = {
            mode: tuple(sorted(name for name, m in self._modes.items() if m == mode))
            for mode in ("direct", "gated")
        }
        await _load(rules.ruleset(msgspec.structs.replace(self._settings, **by_mode)))

    async def _members(self, name: str) -> set[str]:
        done = await _nft(("-j", "list", "set", "inet", self._settings.table, name))
        if done.code:
            return set()
        items = json.loads(done.stdout)["nftables"]
        return {name for item in items for name in item.get("set", {}).get("elem", ())}

    async def _keep(self) -> None:
        """Load the table again when somebody flushed the host's whole ruleset.

        A restart of the distribution's nftables service does that.
        """
        while True:
            await asyncio.sleep(GUARD_INTERVAL)
            await self._check()

    async def _check(self) -> None:
        try:
            async with self._changing:
                done = await _nft(("list", "chain", "inet", self._settings.table, "to_host"))
                if done.code:
                    _log.warning("the packet filter was removed by somebody and is loaded again")
                    await self.reload()
        except (SandboxError, OSError) as error:  # TimeoutError of a busy host too
            _log.warning("the packet filter cannot be looked after", error=str(error))

    async def _warn_of_refusals(self) -> None:
        done = await _nft(("-j", "list", "chains"))
        listing = {} if done.code else json.loads(done.stdout)
        for hook in ("forward", "input"):
            if chains := foreign.refusals(listing, hook):
                _log.warning(
                    "other packet filters keep sandboxes from the internet",
                    chains=chains,
                    suggestion=foreign.SUGGESTIONS[hook],
                )


async def remove(table: str) -> None:
    """Remove the table of an engine that will not come back, if there is one.

    Raises:
        ContainerUnavailableError: the host refused (reason "network").
    """
    await _load(rules.remove_table(table))


async def _load(script: str) -> None:
    done = await _nft(("-f", "-"), script.encode())
    if done.code:
        raise ContainerUnavailableError(f"nft: {done.message}", context={"reason": "network"})


async def _nft(arguments: Sequence[str], script: bytes | None = None) -> process.Completed:
    try:
        return await process.run(("nft", *arguments), stdin=script)
    except FileNotFoundError as error:
        raise ContainerUnavailableError(
            "this host has no nft, so sandboxes cannot be kept apart",
            context={"reason": "network"},
            suggestion="install nftables",
        ) from error
