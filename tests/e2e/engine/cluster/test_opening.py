from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

import clusters
from atoll.cluster_settings import ClusterSettings
from atoll.engine.cluster.opening import opened
from atoll.errors import RuntimeNotAvailableError
from atoll.settings import Settings, StorageSettings


async def test_a_cluster_that_cannot_be_used_is_a_typed_error(tmp_path: Path) -> None:
    settings = Settings(
        cluster=ClusterSettings(kubeconfig=tmp_path / "missing"),
        storage=StorageSettings(state_dir=tmp_path),
    )
    async with AsyncExitStack() as stack:
        with pytest.raises(RuntimeNotAvailableError, match="cluster"):
            await opened(settings, "abcd1234", stack)


@clusters.needed
async def test_all_engines_of_a_namespace_have_one_key(tmp_path: Path) -> None:
    """So each reaches the Pods that another one started."""
    settings = Settings(cluster=clusters.settings(), storage=StorageSettings(state_dir=tmp_path))
    async with AsyncExitStack() as stack:
        first = await opened(settings, "abcd1234", stack)
        second = await opened(msgspec.structs.replace(settings), "ffff0000", stack)
        keys = {parts.runtime("kubernetes")._owner.key for parts in (first, second)}  # type: ignore[attr-defined]
        assert len(keys) == 1
