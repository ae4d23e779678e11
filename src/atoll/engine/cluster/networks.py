"""Who reaches whom in a cluster: one NetworkPolicy a start, or nobody who enforces any.

The addresses are the Pods' own. Where the cluster's network does not enforce policies, none are made:
a sandbox that asks to be cut off is refused, and not left open in silence (`closes`).
"""

from collections.abc import Sequence

from atoll.cluster_settings import ClusterSettings
from atoll.engine.bare.parts import BareNetworks
from atoll.engine.cluster import policies
from atoll.network.filter import Mode
from atoll.network.policy import SandboxPolicy
from atoll.network_settings import NetworkSettings
from atoll.runtime.kubernetes import api, manifest, status
from atoll.runtime.kubernetes.api import Api, ApiError
from atoll.settings import Settings


def networks(cluster: Api, settings: Settings, engine_id: str) -> BareNetworks:
    """Return the networks of this cluster."""
    if not settings.cluster.enforces_policies:
        return BareNetworks()
    return PolicyNetworks(cluster, settings.cluster, settings.network, engine_id)


class PolicyNetworks(BareNetworks):
    """Implements `Networks` and `Ranged`.

    Args:
        cluster: the API.
        settings: where policies are, and who the engine is.
        network: ranges that sandboxes may reach.
        engine_id: what policies are labelled with.
    """

    closes = True

    def __init__(
        self, cluster: Api, settings: ClusterSettings, network: NetworkSettings, engine_id: str
    ) -> None:
        self._api, self._settings, self._engine_id = cluster, settings, engine_id
        self._open = SandboxPolicy(key="", host_ref="", addresses=(), opened=network.private_ranges)

    async def set_mode(self, host_ref: str, mode: Mode) -> None:
        """Open the internet to a start, or nothing."""
        await self._put(host_ref, policies.egress(self._open) if mode == "direct" else [])

    async def restrict(self, host_ref: str, wanted: SandboxPolicy) -> None:
        """Open to a start what *wanted* opens."""
        await self._put(host_ref, policies.egress(wanted))

    async def release(self, host_ref: str) -> None:
        """Delete the policy: its Pod is gone."""
        try:
            await self._api.delete(self._path(host_ref))
        except ApiError as error:
            raise status.unavailable(error) from error

    async def list(self) -> list[str]:
        """Return every start that has a policy of this engine."""
        query = {"labelSelector": manifest.selector(self._engine_id)}
        found = await self._api.call("GET", self._path(), query=query)
        return [one["metadata"]["name"] for one in found["items"]]

    async def _put(self, host_ref: str, egress: Sequence[policies.Rule]) -> None:
        wanted = policies.network_policy(host_ref, egress, self._engine_id, self._settings)
        try:
            await self._api.create(self._path(), wanted)
        except ApiError as error:
            if not error.conflict:
                raise status.unavailable(error) from error
            await self._replace(host_ref, wanted)

    async def _replace(self, host_ref: str, wanted: api.Object) -> None:
        try:
            await self._api.call("PUT", self._path(host_ref), body=wanted)
        except ApiError as error:
            raise status.unavailable(error) from error

    def _path(self, name: str = "") -> str:
        kind, group = "networkpolicies", "apis/networking.k8s.io/v1"
        return api.path(self._settings.namespace, kind, name, group=group)
