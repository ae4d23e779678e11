"""What a start waits for, on a cluster in memory whose Pods are sockets of this host."""

import asyncio
import socket
from pathlib import Path

import pytest

from atoll.cluster_settings import ClusterSettings
from atoll.errors import ContainerUnavailableError
from atoll.runtime.base import ContainerSpec
from atoll.runtime.kubernetes.api import Object
from atoll.runtime.kubernetes.driver import KubernetesRuntime, Owner
from atoll.runtime.kubernetes.manifest import CONTAINER
from atoll.settings import MIB, RuntimeSettings, Settings, StorageSettings
from objects import Objects


class Nodes(Objects):
    """Says of each Pod at once that it runs."""

    async def create(self, collection: str, body: Object) -> Object:
        if body["kind"] == "Pod":
            running = [{"name": CONTAINER, "state": {"running": {}}}]
            told = {"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": running}
            body = {**body, "status": told}
        return await super().create(collection, body)


def spec(tmp_path: Path) -> ContainerSpec:
    return ContainerSpec(
        host_ref="start",
        generation=1,
        identity="layer",
        hostname="box",
        image="image",
        rootfs=Path("/"),
        run_dir=tmp_path / "run/start/container",
        netns=None,
        id_base=0,
        id_count=1,
        memory=512 * MIB,
        cpu=1,
        pids=100,
    )


async def opened(nodes: Nodes, port: int, tmp_path: Path, timeout: float) -> KubernetesRuntime:
    settings = Settings(
        cluster=ClusterSettings(agent_port=port),
        storage=StorageSettings(state_dir=tmp_path),
        runtime=RuntimeSettings(start_timeout=timeout),
    )
    return await KubernetesRuntime.open(nodes, settings, Owner("e", b"key"))  # type: ignore[arg-type]


async def test_an_agent_that_is_late_to_listen_is_waited_for(tmp_path: Path) -> None:
    """On a busy node it was taken for dead: its container was said to run."""
    with socket.socket() as agent:
        agent.bind(("127.0.0.1", 0))
        runtime = await opened(Nodes(), agent.getsockname()[1], tmp_path, 30)
        starting = asyncio.create_task(runtime.start(spec(tmp_path)))
        await asyncio.sleep(0.2)
        assert not starting.done()
        agent.listen()
        assert (await starting).host_ref == "start"
        await runtime.close()


async def test_one_that_never_listens_leaves_nothing(tmp_path: Path) -> None:
    nodes = Nodes()
    with socket.socket() as agent:
        agent.bind(("127.0.0.1", 0))
        runtime = await opened(nodes, agent.getsockname()[1], tmp_path, 0.3)
        with pytest.raises(ContainerUnavailableError, match="Running"):
            await runtime.start(spec(tmp_path))
        assert nodes.there == {}
        await runtime.close()
