"""Removes the network of an engine that will not come back: its slots and its packet filter."""

from pathlib import Path

from atoll.errors import ContainerUnavailableError
from atoll.host import process
from atoll.host.threads import run_to_end
from atoll.network import plan, rules
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
    links = Links(plan.Plan(settings.cidr), plan.group(engine_id), base)
    for link in await run_to_end(links.find):
        await run_to_end(links.remove, link.number)
    script = rules.remove_table(rules.table_name(engine_id))
    done = await process.run(("nft", "-f", "-"), stdin=script.encode())
    if done.code:
        raise ContainerUnavailableError(f"nft: {done.message}", context={"reason": "network"})
