"""Opens the parts of an engine whose sandboxes are Pods."""

from contextlib import AsyncExitStack

from atoll.engine.cluster.networks import networks
from atoll.engine.cluster.parts import (
    ClusterImages,
    ClusterLayers,
    ClusterRoots,
)
from atoll.engine.parts import Parts
from atoll.errors import RuntimeNotAvailableError
from atoll.runtime.kubernetes.api import Api, ApiError
from atoll.runtime.kubernetes.driver import KubernetesRuntime, Owner
from atoll.runtime.kubernetes.tokens import shared_key
from atoll.settings import Settings
from atoll.storage.idmap import IdRanges


async def opened(settings: Settings, engine_id: str, stack: AsyncExitStack) -> Parts:
    """Open the parts; *stack* closes them again.

    Raises:
        RuntimeNotAvailableError: the cluster cannot be used.
    """
    cluster, runtime = settings.cluster, settings.runtime
    try:
        api = await Api.connect(cluster.kubeconfig)
        stack.push_async_callback(api.close)
        key = await shared_key(api, cluster.namespace)
        driver = await KubernetesRuntime.open(api, settings, Owner(engine_id, key))
    except ApiError as error:
        raise RuntimeNotAvailableError(
            f"the cluster cannot be used: {error}",
            context={"runtime": "kubernetes", "namespace": cluster.namespace},
            suggestion="check the kubeconfig, the namespace, and the engine's rights in it",
        ) from error
    stack.push_async_callback(driver.close)
    claims = settings.storage.state_dir / "ids"
    return Parts(
        images=ClusterImages(),
        layers=ClusterLayers(api, cluster, engine_id),
        roots=ClusterRoots(),
        networks=networks(api, settings, engine_id),
        ids=IdRanges(runtime.id_base, runtime.id_count, engine_id, claims),
        runtimes=dict.fromkeys((driver.level, *cluster.runtime_classes), driver),
    )
