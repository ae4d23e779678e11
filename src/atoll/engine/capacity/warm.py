"""A warm container: started ahead for nobody, and given an identity when somebody comes.

It has run nothing but the agent. Its files, network and id range are its own from the start and stay
so; its generation is 0 until the agent is told the one of the sandbox it becomes. Its name
is its `host_ref` for good, recorded in the table ``warm`` before anything of it is made.
"""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from atoll.engine.lifecycle import rootfiles, variables
from atoll.engine.lifecycle.launch import Launch
from atoll.engine.lifecycle.sequence import Lifecycle
from atoll.engine.lifecycle.steps import in_force
from atoll.engine.link.link import Endpoint
from atoll.engine.store import record as rules
from atoll.engine.store.database import Database
from atoll.engine.store.record import InForce, Record
from atoll.wire import ids
from atoll.wire.sandbox import SandboxOptions, State

HOSTNAME: Final = "warm"
"""Its name until it has one: nobody sees it."""


class Kind(NamedTuple):
    """What containers of the pool can stand in for each other."""

    image: str
    instance_type: str
    level: str


class Warm(msgspec.Struct, frozen=True, kw_only=True):
    """One warm container. `in_force` is None until it is ready."""

    host_ref: str
    layer_id: str
    kind: Kind
    in_force: InForce | None = None
    made_at: datetime | None = None

    @property
    def ready(self) -> InForce:
        """What is in force in one that is ready."""
        if self.in_force is None:
            raise AssertionError("a container that is being made is in no pool")
        return self.in_force

    def record(self) -> Record:
        """Return it in the words of the lifecycle, which makes and removes it."""
        return Record(
            namespace="",
            id=HOSTNAME,
            state=State.STARTING,
            layer_id=self.layer_id,
            host_ref=self.host_ref,
            created_at=self.made_at or rules.now(),
            in_force=self.in_force,
        )


class WarmTable:
    """The store's table of warm containers.

    Args:
        database: where it is.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, warm: Warm) -> None:
        """Store a container that is to be made, or was."""
        values = warm.host_ref, warm.layer_id, msgspec.json.encode(warm)
        await self._database.execute("INSERT OR REPLACE INTO warm VALUES (?, ?, ?)", values)

    async def delete(self, host_ref: str) -> None:
        """Forget one that is removed."""
        await self._database.execute("DELETE FROM warm WHERE host_ref = ?", (host_ref,))

    async def all(self) -> list[Warm]:
        """Return what an earlier engine left."""
        rows = await self._database.read("SELECT body FROM warm", ())
        return [msgspec.json.decode(body, type=Warm) for (body,) in rows]


async def make(life: Lifecycle, warm: Warm, wanted: SandboxOptions) -> Warm:
    """Start a container that is recorded already; return it ready.

    Raises:
        SandboxError: as `Lifecycle.start`; nothing is left.
    """
    size = rules.instance(warm.kind.instance_type, life.settings.instance_types)
    launch = Launch(warm.record(), wanted, size)
    await life.start(launch)
    return msgspec.structs.replace(warm, in_force=in_force(life, launch), made_at=rules.now())


async def name(
    life: Lifecycle, endpoint: Endpoint, record: Record, told: Mapping[str, str]
) -> None:
    """Make the container that of *record*: host name, hosts file, variables, generation.

    Args:
        told: variables that its agent knows.

    Raises:
        LinkError: the agent does not answer.
        SandboxError: it, or the kernel, refuses.
    """
    hostname = ids.hostname(record.id)
    slot = await life.parts.networks.acquire(endpoint.host_ref)
    await asyncio.to_thread(
        rootfiles.rename,
        life.run_dir(endpoint.host_ref) / "files",
        hostname=hostname,
        address=slot.address,
    )
    await endpoint.runtime.rename(endpoint.host_ref, hostname)
    env = variables.difference(told, record.in_force.env if record.in_force else {})
    await endpoint.call(
        {
            "op": "assign",
            "sandbox": f"{record.namespace}/{record.id}",  # neither has a slash
            "generation": record.generation,
            "hostname": hostname,
            "env": env,
        }
    )
