import secrets

import pytest

import clusters
from atoll.engine.cluster.networks import PolicyNetworks, networks
from atoll.engine.egress.enforcing import Enforcing
from atoll.errors import NotSupportedByRuntimeError
from atoll.network.policy import SandboxPolicy
from atoll.network_settings import NetworkSettings
from atoll.runtime.kubernetes import api
from atoll.settings import Settings

CUT = SandboxPolicy(key="n/s", host_ref="", addresses=(), internet=False)
RANGES = SandboxPolicy(key="n/s", host_ref="", addresses=(), allowed=("8.8.8.0/24",))
NAMES = SandboxPolicy(key="n/s", host_ref="", addresses=(), allowed=("example.com",))


async def test_where_nobody_enforces_policies_none_is_pretended() -> None:
    settings = Settings(cluster=clusters.settings(enforces_policies=False))
    enforcing = Enforcing(networks(None, settings, "e"), NetworkSettings(), None)  # type: ignore[arg-type]
    for policy in (CUT, RANGES, NAMES):
        with pytest.raises(NotSupportedByRuntimeError):
            await enforcing.enforce("r", policy)


@clusters.needed
async def test_each_start_has_a_policy_that_follows_what_is_asked_of_it() -> None:
    engine_id = secrets.token_hex(4)
    ref = f"{engine_id}-start"
    async with clusters.connected() as cluster:
        settings = clusters.settings()
        made = PolicyNetworks(cluster, settings, NetworkSettings(), engine_id)
        enforcing = Enforcing(made, NetworkSettings(), None)
        kind, group = "networkpolicies", "apis/networking.k8s.io/v1"
        path = api.path(settings.namespace, kind, ref, group=group)
        try:
            for policy, rules in ((CUT, 0), (RANGES, 1), (CUT, 0)):
                await enforcing.enforce(ref, policy)
                found = await cluster.get(path)
                assert found
                assert len(found["spec"].get("egress", [])) == rules
            assert await made.list() == [ref]
            with pytest.raises(NotSupportedByRuntimeError, match="hosts"):
                await enforcing.enforce(ref, NAMES)
        finally:
            await made.release(ref)
            await made.release(ref)  # idempotent
        assert await cluster.get(path) is None
