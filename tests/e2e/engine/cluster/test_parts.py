import secrets
from pathlib import Path

import pytest

import clusters
from atoll.engine.cluster.parts import ClusterImages, ClusterLayers, ClusterRoots
from atoll.errors import NotSupportedByRuntimeError
from atoll.settings import MIB


@clusters.needed
async def test_the_files_of_a_sandbox_are_a_claim_that_goes_with_them() -> None:
    engine_id = secrets.token_hex(4)
    async with clusters.connected() as cluster:
        layers = ClusterLayers(cluster, clusters.settings(), engine_id)
        name = f"{engine_id}-layer"
        assert not await layers.exists(name)
        await layers.create(name, 100 * MIB)
        await layers.create(name, 100 * MIB)  # idempotent
        assert await layers.exists(name)
        assert await layers.list() == [name]
        await layers.delete(name)
        await layers.delete(name)


async def test_what_a_cluster_cannot_do_is_refused_and_never_pretended() -> None:
    layers = ClusterLayers(None, clusters.settings(persist=""), "e")  # type: ignore[arg-type]
    refused = [
        layers.attach("layer"),
        layers.snapshots.take("layer", "snapshot"),
        layers.snapshots.clone("snapshot", "layer", 1),
        ClusterRoots().attach("ref", "/data", "layer", read_only=True),
        ClusterImages().build_base(print),
        ClusterImages().build(Path("/"), "Dockerfile", tag="t", network=None, progress=print),
    ]
    for call in refused:
        with pytest.raises(NotSupportedByRuntimeError):
            await call


async def test_without_claims_no_files_are_missed() -> None:
    layers = ClusterLayers(None, clusters.settings(persist=""), "e")  # type: ignore[arg-type]
    assert await layers.exists("layer")
    await layers.create("layer", 1)
