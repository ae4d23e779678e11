"""One of several engines of a namespace: its store, its peers, and how it follows them."""

import secrets
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.cluster_settings import ClusterSettings
from atoll.engine.cluster.peers import LeasePeers
from atoll.engine.cluster.store import ClusterStore
from atoll.errors import RuntimeNotAvailableError
from atoll.runtime.kubernetes.api import Api, ApiError

if TYPE_CHECKING:
    from atoll.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class Replica:
    """What an engine that is not alone works with."""

    store: ClusterStore
    peers: LeasePeers

    def follow(self, engine: "Engine") -> Callable[[], Awaitable[None]]:
        """Keep *engine* in step with the others; return what ends that."""
        from atoll.engine.cluster.following import Following  # it needs the engine

        following = Following(engine, self.store, self.peers)
        following.open()
        return following.close


async def joined(settings: ClusterSettings, stack: AsyncExitStack) -> Replica:
    """Become one of the engines of a namespace; *stack* leaves again.

    Raises:
        RuntimeNotAvailableError: the cluster cannot be used.
    """
    actor = secrets.token_hex(4)
    try:
        api = await Api.connect(settings.kubeconfig)
        stack.push_async_callback(api.close)
        peers = LeasePeers(api, settings.namespace, actor)
        await peers.open()
        stack.push_async_callback(peers.close)
        store = await ClusterStore(api, settings.namespace, actor).open()
    except ApiError as error:
        raise RuntimeNotAvailableError(
            f"the cluster cannot be used: {error}",
            context={"runtime": "kubernetes", "namespace": settings.namespace},
            suggestion="install the custom resources, and check the engine's rights",
        ) from error
    return Replica(store, peers)
