"""Which other replicas of an engine live: each renews a Lease, and each watches those of the others.

How long a lease was not renewed is counted by the clock of who watches, from when it heard of the
last renewal: clocks of nodes are not compared. Who could not renew its own lease has heard nothing of
the others either, and counts everybody as alive until it has listened for a whole lease again.

Nothing unsafe follows from a wrong guess. Who takes over says so by a compare-and-set of the record
first, and the one that was taken for dead finds that out at its next write. Where sandboxes have leases
of their own, the Leases of replicas also carry what each does about them (`renewals`).
"""

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from atoll.engine.cluster import renewals
from atoll.engine.cluster.documents import LABELS
from atoll.engine.cluster.renewals import Peer, Renewals
from atoll.runtime.kubernetes import api, status
from atoll.runtime.kubernetes.api import Api, ApiError, Object
from atoll.runtime.kubernetes.mirror import Mirror
from atoll.wire.sandbox import SandboxOptions

log = structlog.get_logger(__name__)

LEASE: Final = 15.0
"""Seconds without a renewal after which a replica counts as dead."""

RENEW: Final = 3.0
"""Seconds between two renewals."""

FORGET: Final = 40 * LEASE
"""Seconds after which the lease of a dead replica is removed."""

MOST_NOTED: Final = 60.0
"""Seconds of activity of a sandbox that are always worth a write, however long it may be idle."""

LOOK: Final = 0.5
"""Seconds between two looks at whether what others renewed is over."""

_TOLD: Final = "atoll.dev/leases"
_PREFIX: Final = "atoll-replica-"
_COMPONENT: Final = {"app.kubernetes.io/component": "replica"}


class Vitals:
    """Who was heard of when. Pure; times are of the monotonic clock.

    Args:
        now: when listening began.
    """

    def __init__(self, now: float) -> None:
        self._listening: float | None = now
        self._heard: dict[str, float] = {}
        self._left: set[str] = set()

    def heard(self, actor: str, now: float) -> None:
        """A renewal was seen."""
        self._heard[actor] = now

    def left(self, actor: str) -> None:
        """It said goodbye."""
        self._left.add(actor)

    def deaf(self) -> None:
        """Nothing can be heard now."""
        self._listening = None

    def listening(self, now: float) -> None:
        """What happens is heard, at the latest from now on."""
        if self._listening is None:
            self._listening = now

    def last(self, actor: str, now: float) -> float:
        """Return when *actor* was heard of; of one never heard of, *now*."""
        return self._heard.setdefault(actor, now)

    def has_left(self, actor: str) -> bool:
        """Whether it said goodbye."""
        return actor in self._left

    def alive(self, actor: str, now: float) -> bool:
        """Whether *actor* may be at work; one never heard of may just have begun."""
        if not actor or actor in self._left:
            return False
        if self._listening is None:
            return True
        last = max(self.last(actor, now), self._listening)
        return now - last < LEASE

    def silent(self, now: float) -> list[str]:
        """Return those that were not heard of for so long that nobody asks any more."""
        return [actor for actor, last in self._heard.items() if now - last > FORGET]

    def forget(self, actor: str) -> None:
        """Nothing of it is left."""
        self._heard.pop(actor, None)


class LeasePeers:
    """Implements `Peers` for the replicas of one namespace.

    Args:
        cluster: the API.
        namespace: of the cluster.
        actor: which replica this is.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        cluster: Api,
        namespace: str,
        actor: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._actor, self._clock = cluster, actor, clock
        self._path = api.path(namespace, "leases", group="apis/coordination.k8s.io/v1")
        selector = ",".join(f"{name}={value}" for name, value in (LABELS | _COMPONENT).items())
        self._mirror = Mirror(cluster, self._path, selector, self._note)
        self._vitals = Vitals(clock())
        self.renewals = Renewals()
        self._renewed = clock()  # when the request was sent by which the own lease is valid
        self._tell = asyncio.Event()
        self._own: Object | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Take the own lease and listen to the others.

        Raises:
            ApiError: the cluster refuses.
        """
        self._own = await self._api.create(self._path, self._lease())
        await self._mirror.open()
        self._task = asyncio.create_task(self._renew(), name="renewal of the replica's lease")

    async def close(self) -> None:
        """Say goodbye: what this replica has under way may be taken over at once."""
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._mirror.close()
        try:
            await self._put(left=True)
        except ApiError as error:
            log.info("own lease not given up", reason=str(error))

    def alive(self, actor: str) -> bool:
        """See `Peers.alive`."""
        return self._vitals.alive(actor, self._clock())

    def fresh(self, seconds: float) -> bool:
        """Whether the own lease was renewed in the last *seconds*: the others count on that."""
        return self._clock() - self._renewed < seconds

    def tell(self) -> None:
        """Have the others know at once what changed in `renewals`."""
        self._tell.set()

    def others(self) -> list[Peer]:
        """Return the other replicas, as last heard of."""
        return [self._peer(found) for found in self._mirror.all() if _actor(found) != self._actor]

    def _peer(self, found: Object) -> Peer:
        actor, now = _actor(found), self._clock()
        said = found["metadata"].get("annotations", {}).get(_TOLD, "{}")
        return Peer(
            heard=self._vitals.last(actor, now),
            left=self._vitals.has_left(actor),
            alive=self._vitals.alive(actor, now),
            told=renewals.read(json.loads(said)),
        )

    async def outlived(self, host_ref: str, lease: float) -> None:
        """See `Peers.outlived`."""
        if self.renewals.stop(host_ref, self._clock()):
            self.tell()
        while True:
            try:
                await self._mirror.catch_up()
            except ApiError as error:
                raise status.unavailable(error) from error
            now = self._clock()
            ends = [renewals.over(host_ref, lease, peer, now) for peer in self.others()]
            if now >= max([self.renewals.over(host_ref, lease), *ends]):
                return
            await asyncio.sleep(LOOK)

    def note_step(self, wanted: SandboxOptions) -> float:
        """See `Peers.note_step`: often enough that no other replica takes a used one for idle."""
        return min(MOST_NOTED, (wanted.sleep_after_ms or 0) / 4000)

    def _note(self, name: str, found: Object | None) -> None:
        actor = name.removeprefix(_PREFIX)
        if found:
            self._vitals.heard(actor, self._clock())
        if found is None or not found["spec"].get("holderIdentity"):
            self._vitals.left(actor)

    async def _renew(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RENEW):
                    await self._tell.wait()
            self._tell.clear()
            try:
                await self._put()
                self._vitals.listening(self._clock())
                await self._forget()
            except ApiError as error:
                log.warning("own lease not renewed", reason=str(error))
                if not error.conflict:
                    self._vitals.deaf()
                self._own = None

    async def _put(self, *, left: bool = False) -> None:
        path, sent = f"{self._path}/{_PREFIX}{self._actor}", self._clock()
        own = self._own or await self._api.get(path)
        wanted = self._lease(left=left)
        if own is None:
            self._own = await self._api.create(self._path, wanted)
        else:
            wanted["metadata"]["resourceVersion"] = own["metadata"]["resourceVersion"]
            self._own = await self._api.call("PUT", path, body=wanted)
        self._renewed = sent

    async def _forget(self) -> None:
        for actor in self._vitals.silent(self._clock()):
            await self._api.delete(f"{self._path}/{_PREFIX}{actor}")
            self._vitals.forget(actor)

    def _lease(self, *, left: bool = False) -> dict[str, Any]:
        told = {_TOLD: json.dumps(self.renewals.told(self._clock()))}
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": f"{_PREFIX}{self._actor}",
                "labels": LABELS | _COMPONENT,
                "annotations": told,
            },
            "spec": {
                "holderIdentity": "" if left else self._actor,
                "leaseDurationSeconds": round(LEASE),
                "renewTime": now,
            },
        }


def _actor(found: Object) -> str:
    return str(found["metadata"]["name"]).removeprefix(_PREFIX)
