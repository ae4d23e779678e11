"""Removes the network of an engine that will not come back: gateway, slots and packet filter."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from atoll.host.threads import run_to_end
from atoll.network import filter, plan, rules
from atoll.network.links import Links
from atoll.network_settings import NetworkSettings

_PROC = Path("/proc")


async def remove(settings: NetworkSettings, engine_id: str, base: Path) -> None:
    """Remove it; nothing happens where there is nothing.

    Args:
        settings: of this engine; the slots of the other are known by their group.
        engine_id: the other one.
        base: where namespaces are kept.

    Raises:
        ContainerUnavailableError: the packet filter cannot be removed (reason "network").
    """
    await run_to_end(kill_all_of, plan.gateway_uid(engine_id))
    links = Links(plan.Plan(settings.cidr, settings.cidr6), plan.group(engine_id), base)
    for link in await run_to_end(links.find):
        await run_to_end(links.remove, link.number)
    await filter.remove(rules.table_name(engine_id))


def kill_gateways(logs: Path, but: int) -> None:
    """Kill every gateway that writes to *logs*, except the process *but*. Blocking."""
    wanted = {b"atoll.network.gateway", os.fsencode(logs)}
    for path in _PROC.iterdir():
        if path.name.isdigit() and int(path.name) != but:
            with suppress(OSError):  # ended meanwhile
                if wanted <= set((path / "cmdline").read_bytes().split(b"\0")):
                    os.kill(int(path.name), signal.SIGKILL)


def kill_all_of(uid: int, but: int = 0) -> None:
    """Kill every process of a user: a gateway's is that of nobody else on the host. Blocking.

    Args:
        uid: the user.
        but: a process that is left.
    """
    # Who owns its folder in /proc says nothing: it gave up being root, so root does.
    line = f"\nUid:\t{uid}\t"
    for path in _PROC.iterdir():
        with suppress(OSError):  # ended meanwhile
            if (
                path.name.isdigit()
                and int(path.name) != but
                and line in (path / "status").read_text()
            ):
                os.kill(int(path.name), signal.SIGKILL)
