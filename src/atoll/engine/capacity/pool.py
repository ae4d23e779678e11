"""The warm pool: containers kept ready for each image and instance type, so that a first call is fast.

It decides how many; `warm` makes them and gives them away. A container leaves the pool in the same
write that makes it a sandbox's, so a crash at any moment neither loses nor doubles one. The next
engine takes over what is ready and removes the rest.
"""

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

import msgspec
import structlog

from atoll.engine.capacity import node
from atoll.engine.capacity import warm as containers
from atoll.engine.capacity.admission import Admission
from atoll.engine.capacity.warm import Kind, Warm, WarmTable
from atoll.engine.lifecycle.sequence import Lifecycle
from atoll.engine.link.link import Endpoint, LinkError
from atoll.engine.store import record as rules
from atoll.errors import SandboxError, ValidationFailedError
from atoll.settings import PoolSettings
from atoll.wire.pool import PoolStats, Prime, WarmKind
from atoll.wire.sandbox import NamespaceConfig, SandboxOptions

log = structlog.get_logger(__name__)

SETTLE: Final = 0.05
"""Seconds between a container that is taken and the start of the next: the first call goes first."""


class WarmPool:
    """Containers nobody owns yet.

    Args:
        life: makes and removes them.
        table: where they are recorded.
        admission: what room there is.
        namespaces: their `warm_pool` are targets too.
        new_name: returns fresh names for containers and layers.
    """

    def __init__(
        self,
        life: Lifecycle,
        table: WarmTable,
        admission: Admission,
        namespaces: Mapping[str, NamespaceConfig],
        new_name: Callable[[], str],
    ) -> None:
        self._life, self._table, self._admission = life, table, admission
        self._namespaces, self._new_name = namespaces, new_name
        self._ready: defaultdict[Kind, deque[Warm]] = defaultdict(deque)
        self._making: dict[asyncio.Task[None], Kind] = {}
        self._asked: dict[Kind, int] = {}
        self._drained = asyncio.Event()
        self._paused, self._held_until = False, 0.0
        self._refilling: asyncio.Task[None] | None = None
        self._taken = self._missed = 0

    @property
    def _settings(self) -> PoolSettings:
        return self._life.settings.pool

    # What is wanted.

    def kind(self, image: str | None, instance_type: str | None) -> Kind:
        """Return the kind of containers with these, or the engine's defaults for them."""
        settings = self._life.settings
        return Kind(
            image or settings.images.default,
            instance_type or settings.lifecycle.instance_type,
            settings.runtime.default,
        )

    def targets(self) -> dict[Kind, int]:
        """Return how many of each kind are to be ready."""
        found = {self.kind(None, None): self._settings.target}
        for config in self._namespaces.values():
            if config.warm_pool and not isinstance(config.instance_type, msgspec.Struct):
                kind = self.kind(config.image, config.instance_type)
                found[kind] = max(config.warm_pool, found.get(kind, 0))
        return found | self._asked

    def _missing(self) -> list[Kind]:
        """Return a kind for each container that is to be made now, within the limits."""
        making = Counter(self._making.values())
        missing = (
            kind
            for kind, target in self.targets().items()
            for _ in range(target - len(self._ready[kind]) - making[kind])
        )
        total = sum(map(len, self._ready.values())) + len(self._making)
        room = min(self._settings.batch - len(self._making), self._settings.max_warm - total)
        held = self._paused or time.monotonic() < self._held_until
        return [] if held else list(islice(missing, max(0, room)))

    # Taking.

    async def take(self, kind: Kind) -> Warm | None:
        """Return a container that runs and give it up; None when none still fits its image."""
        while self._ready[kind]:
            found = self._ready[kind][0]
            image = await self._life.parts.images.obtain(kind.image)
            fits = found.ready.digest == image.digest and await self._runs(found)
            if not self._ready[kind] or self._ready[kind][0] is not found:
                continue  # another taker was quicker
            # No await between this and the return: a taker who is cancelled has taken nothing.
            self._ready[kind].popleft()
            self._drained.set()
            if fits:
                self._taken += 1
                return found
            await asyncio.shield(self._remove(found))
        self._missed += self.targets().get(kind, 0) > 0
        return None

    async def _runs(self, warm: Warm) -> bool:
        """Whether it did not end meanwhile, as a Pod does whose node is drained."""
        try:
            return bool(await self._life.endpoint(warm.record()).runtime.find(warm.host_ref))
        except SandboxError:  # who cannot say will not give it an identity either
            return False

    async def discard(self, warm: Warm) -> None:
        """Remove one that was taken and did not become anybody's."""
        await self._remove(warm)

    # Filling.

    def open(self) -> None:
        """Begin to fill."""
        self._drained.set()
        self._refilling = asyncio.create_task(self._refill(), name="warm pool")

    async def _refill(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._settings.refresh_interval):
                    await self._drained.wait()
            except TimeoutError:
                pass
            self._drained.clear()
            await asyncio.sleep(SETTLE)
            await self._trim()
            for kind in self._missing():
                if self._short():
                    break
                self._begin(kind)

    async def _trim(self) -> None:
        """Remove what nobody wants any more, and what has ended."""
        targets = self.targets()
        for kind, waiting in list(self._ready.items()):
            ended = [warm for warm in list(waiting) if not await self._runs(warm)]
            for warm in ended:
                if warm in waiting:  # else somebody took it, and sees for himself
                    waiting.remove(warm)
                    await self._remove(warm)
            while len(waiting) > targets.get(kind, 0):
                await self._remove(waiting.pop())

    def _short(self) -> bool:
        """Whether what is made now would be given up again for its memory."""
        starts = len(self._making) + 1
        left = self._admission.free().memory - starts * node.START_MEMORY
        return left < self._admission.low_memory or bool(self._admission.short_for(starts))

    def _begin(self, kind: Kind) -> None:
        task = asyncio.create_task(self._make(kind), name=f"warm {kind.image}")
        self._making[task] = kind
        task.add_done_callback(self._made)

    def _made(self, task: "asyncio.Task[None]") -> None:
        del self._making[task]
        if task.cancelled():
            return
        if error := task.exception():
            # The next try is a refresh interval away.
            log.warning("a warm container could not be made", reason=str(error))
        else:
            self._drained.set()

    async def _make(self, kind: Kind) -> None:
        wanted = Warm(host_ref=self._new_name(), layer_id=self._new_name(), kind=kind)
        await self._table.put(wanted)
        self._life.faults.at("warm.recorded")
        try:
            ready = await containers.make(self._life, wanted, self._options(kind))
            await self._table.put(ready)
        except BaseException:
            await asyncio.shield(self._remove(wanted))
            raise
        self._life.faults.at("warm.made")
        self._ready[kind].append(ready)

    def _options(self, kind: Kind) -> SandboxOptions:
        own = SandboxOptions(image=kind.image, instance_type=kind.instance_type, runtime=kind.level)
        return rules.with_defaults(own, NamespaceConfig(), self._life.settings)

    async def prime(self, wanted: Prime) -> None:
        """Fill the pool, and return when it is full, or as full as the limits allow.

        Raises:
            ValidationFailedError: a number that cannot be kept.
            SandboxError: the kind is unknown.
        """
        if wanted.target is not None and not 0 <= wanted.target <= self._settings.max_warm:
            raise ValidationFailedError(
                f"{wanted.target} containers cannot be kept warm",
                context={"field": "target", "limit": self._settings.max_warm},
                suggestion=f"use 0 to {self._settings.max_warm} (pool.max_warm)",
            )
        self._paused, self._held_until = False, 0.0
        if wanted.target is not None:
            kind = self.kind(wanted.image, wanted.instance_type)
            rules.check_options(self._options(kind), self._life.settings.instance_types)
            self._asked[kind] = wanted.target
        self._drained.set()
        while (missing := self._missing()) or self._making:
            for kind in missing:
                self._begin(kind)
            outcomes = await asyncio.gather(*self._making, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, Exception):
                    raise outcome

    # Emptying.

    async def shutdown(self) -> None:
        """Remove all that is warm; nothing is made until `prime`."""
        self._paused = True
        for task in list(self._making):
            task.cancel()
        await asyncio.gather(*self._making, return_exceptions=True)
        await self.give_up_memory()

    async def give_up_memory(self) -> None:
        """Remove what waits, a few at a time."""
        while waiting := [warm for kept in self._ready.values() for warm in kept]:
            self._ready.clear()
            for start in range(0, len(waiting), self._settings.batch):
                batch = waiting[start : start + self._settings.batch]
                await asyncio.gather(*map(self._remove, batch))

    async def give_way(self) -> bool:
        """Remove what waits, for a start that found no room; return whether there was anything.

        Nothing is made for one interval, which would take the room again.
        """
        self._held_until = time.monotonic() + self._settings.refresh_interval
        found = any(self._ready.values())
        await self.give_up_memory()
        return found

    async def close(self) -> None:
        """Stop filling and remove what waits: it is of use to nobody while no engine runs."""
        if self._refilling:
            self._refilling.cancel()
            await asyncio.gather(self._refilling, return_exceptions=True)
        await self.shutdown()

    async def _remove(self, warm: Warm) -> None:
        await self._life.remove(warm.host_ref)
        await self._life.forget_files(warm.record())
        await self._table.delete(warm.host_ref)

    # After a restart.

    async def recover(self) -> None:
        """Take over what an earlier engine left ready; remove what it left half-made."""
        wanted, found = self.targets(), await self._table.all()
        for warm in found:
            full = len(self._ready[warm.kind]) >= wanted.get(warm.kind, 0)
            if not full and await self._is_ready(warm):
                self._ready[warm.kind].append(warm)
            else:
                await self._remove(warm)

    async def _is_ready(self, warm: Warm) -> bool:
        if warm.in_force is None:
            return False
        try:
            endpoint: Endpoint = self._life.endpoint(warm.record())
            hello = await self._life.hello(endpoint)
        except (LinkError, SandboxError):
            return False
        self._life.parts.ids.adopt(warm.host_ref, warm.in_force.id_base)
        return hello.version == self._life.version

    def stats(self, assigned: int) -> PoolStats:
        """Return what there is.

        Args:
            assigned: sandboxes that run.
        """
        making = Counter(self._making.values())
        kinds = [
            WarmKind(
                image=kind.image,
                instance_type=kind.instance_type,
                isolation=kind.level,
                warm=len(self._ready[kind]),
                making=making[kind],
                target=target,
            )
            for kind, target in self.targets().items()
        ]
        warm = sum(map(len, self._ready.values()))
        return PoolStats(
            warm=warm,
            making=len(self._making),
            assigned=assigned,
            total=warm + assigned,
            taken=self._taken,
            missed=self._missed,
            max_warm=self._settings.max_warm,
            refresh_interval_ms=round(self._settings.refresh_interval * 1000),
            kinds=kinds,
        )
