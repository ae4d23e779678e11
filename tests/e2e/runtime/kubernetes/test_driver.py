"""Pods of a real cluster as sandboxes, by the driver itself."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import clusters
from atoll.engine.link.link import Endpoint, LinkError
from atoll.errors import ImageNotFoundError, NotSupportedByRuntimeError
from atoll.runtime.base import TOKEN_FILE, ContainerSpec
from atoll.runtime.kubernetes import api
from atoll.runtime.kubernetes.api import Api
from atoll.runtime.kubernetes.driver import KubernetesRuntime, Owner
from atoll.settings import MIB, RuntimeSettings, Settings, StorageSettings

pytestmark = [clusters.needed, pytest.mark.timeout(180)]


@pytest.fixture
async def cluster() -> AsyncIterator[Api]:
    async with clusters.connected() as found:
        yield found


@pytest.fixture
async def runtime(cluster: Api, tmp_path: Path) -> AsyncIterator[KubernetesRuntime]:
    settings = Settings(
        cluster=clusters.settings(persist=""),
        storage=StorageSettings(state_dir=tmp_path),
        runtime=RuntimeSettings(start_timeout=60),
    )
    owner = Owner(secrets.token_hex(4), secrets.token_bytes(32))
    made = await KubernetesRuntime.open(cluster, settings, owner)
    yield made
    for name in await made.list():
        await made.remove(name)
    await made.close()


def spec(runtime: KubernetesRuntime, tmp_path: Path, **changes: Any) -> ContainerSpec:
    name = f"t-{secrets.token_hex(6)}"
    base = ContainerSpec(
        host_ref=name,
        generation=5,
        identity=f"layer-{name}",
        hostname="box",
        image="docker.io/atoll/base:latest",
        rootfs=Path("/"),
        run_dir=tmp_path / "run" / name / "container",
        netns=None,
        id_base=0,
        id_count=1,
        memory=512 * MIB,
        cpu=1,
        pids=100,
    )
    return msgspec.structs.replace(base, **changes)


async def test_a_pod_answers_whoever_has_its_token_and_leaves_nothing(
    runtime: KubernetesRuntime, cluster: Api, tmp_path: Path
) -> None:
    wanted = spec(runtime, tmp_path)
    await runtime.start(wanted)
    endpoint = Endpoint(runtime, wanted.run_dir, wanted.host_ref, wanted.generation)
    assert b'"generation":5' in (await endpoint.call({"op": "hello"}, 10)).replace(b" ", b"")
    assert await runtime.find(wanted.host_ref)
    assert await runtime.list() == [wanted.host_ref]

    (wanted.run_dir / TOKEN_FILE).write_text("wrong")
    with pytest.raises((LinkError, Exception), match="token"):
        await endpoint.call({"op": "hello"}, 10)

    await runtime.remove(wanted.host_ref)
    assert await runtime.find(wanted.host_ref) is None
    namespace = clusters.settings().namespace
    assert await cluster.get(api.path(namespace, "secrets", wanted.host_ref)) is None
    assert not wanted.run_dir.exists()
    await runtime.remove(wanted.host_ref)  # idempotent


async def test_the_end_of_a_pod_is_noticed(
    runtime: KubernetesRuntime, cluster: Api, tmp_path: Path
) -> None:
    wanted = spec(runtime, tmp_path)
    await runtime.start(wanted)
    noticed = asyncio.create_task(runtime.ended(wanted.host_ref))
    await asyncio.sleep(0)
    assert not noticed.done()
    await cluster.delete(api.path(clusters.settings().namespace, "pods", wanted.host_ref))
    async with asyncio.timeout(30):
        await noticed


async def test_an_image_that_no_node_has_is_a_typed_error_and_leaves_nothing(
    runtime: KubernetesRuntime, tmp_path: Path
) -> None:
    wanted = spec(runtime, tmp_path, image="docker.io/atoll/no-such-image:1")
    with pytest.raises(ImageNotFoundError):
        await runtime.start(wanted)
    async with asyncio.timeout(30):
        while await runtime.list():
            await asyncio.sleep(0.2)


async def test_what_a_pod_cannot_do_is_refused(runtime: KubernetesRuntime) -> None:
    with pytest.raises(NotSupportedByRuntimeError):
        await runtime.pause("t-any")
    with pytest.raises(NotSupportedByRuntimeError):
        await runtime.usage("t-any")
