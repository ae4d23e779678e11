"""Removes the network of an engine that will not come back: its slots and its packet filter."""

from pathlib import Path

from atoll.host.threads import run_to_end
from atoll.network import filter, plan, rules
from atoll.network.links import Links
from atoll.settings import NetworkSettings


async def remove(settings: NetworkSettings, engine_id: str, base: Path) -> None:
    """Remove it; nothing happens where there is nothing.

    Args:
        settings: of this engine; the slots of the other are known by their group.
        engine_id: the other one.
        base: where namespaces are kept.

    Raises:
        ContainerUnavailableError: the packet filter cannot be removed (reason "network").
    """
    links = Links(plan.Plan(settings.cidr, settings.cidr6), plan.group(engine_id), base)
    for link in await run_to_end(links.find):
        await run_to_end(links.remove, link.number)
    await filter.remove(rules.table_name(engine_id))
