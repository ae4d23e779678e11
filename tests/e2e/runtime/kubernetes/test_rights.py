"""An engine with the rights of the manifest and no other: it can do all it does, and uses each."""

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import atoll
import clusters
from atoll.engine.engine import opened
from atoll.runtime.kubernetes import api, manifest
from atoll.runtime.kubernetes.api import Api, ApiError
from atoll.runtime.kubernetes.rights import needed, used
from atoll.server.main import Served
from atoll.settings import RuntimeSettings, Settings, StorageSettings
from e2e.engine.cluster import fleet
from e2e.runtime.kubernetes.accounts import account, kubeconfig

pytestmark = [clusters.needed, pytest.mark.timeout(300)]

RARE = {
    ("atoll.dev", "sandboxes", "delete"): "what was destroyed is known for an hour",
    ("atoll.dev", "records", "get"): "another engine was quicker",
    ("coordination.k8s.io", "leases", "get"): "a renewal got no answer",
    ("coordination.k8s.io", "leases", "delete"): "an engine has been silent for minutes",
}
"""What of the rights of several engines one of them alone does not use within a minute."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str, str]]:
    """What the engines of the test ask of the cluster."""
    found = set()
    request = Api._request

    def noted(self: Api, method: str, path: str, body: Any, query: Any, seconds: Any) -> Any:
        found.add(used(method, path, watch="watch" in (query or ())))
        return request(self, method, path, body, query, seconds)

    monkeypatch.setattr(Api, "_request", noted)
    return found


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[tuple[atoll.Environment, str]]:
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(opened(settings))
        served = Served(engine, stack)
        hello = await served.listen(local=False)
        async with atoll.connect(f"unix://{hello['socket']}") as env:
            yield env, hello["engineId"]
        await served.stop()


async def lives(sandbox: atoll.Sandbox) -> None:
    """Have a sandbox do whatever a cluster is asked for."""
    assert (await sandbox.exec("echo kept > /workspace/file")).exit_code == 0
    for _ in range(2):
        await sandbox.start_process("sleep 600")
    await sandbox.set_denied_hosts(["192.0.2.1"])  # a policy is replaced
    await sandbox.stop()
    assert (await sandbox.read_file("/workspace/file")).content == "kept\n"


async def clear(cluster: Api, namespace: str, engine_id: str) -> None:
    """Have all Pods of an engine gone, behind its back."""
    path, query = api.path(namespace, "pods"), {"labelSelector": manifest.selector(engine_id)}
    for pod in (await cluster.call("GET", path, query=query))["items"]:
        await cluster.delete(f"{path}/{pod['metadata']['name']}", grace=0)


@pytest.mark.parametrize("replicas", [False, True])
async def test_every_right_is_used_and_none_is_missed(
    asked: set[tuple[str, str, str]], tmp_path: Path, *, replicas: bool
) -> None:
    namespace, name = clusters.settings().namespace, f"rights-{secrets.token_hex(4)}"
    async with (
        clusters.connected() as cluster,
        account(cluster, namespace, replicas=replicas) as token,
    ):
        await fleet.define()
        asked.clear()
        reached = kubeconfig(token, tmp_path)
        settings = Settings(
            cluster=clusters.settings(kubeconfig=reached, replicas=replicas),
            storage=StorageSettings(state_dir=tmp_path / "state", cache_dir=tmp_path / "cache"),
            runtime=RuntimeSettings(default="kubernetes", start_timeout=120),
        )
        async with serving(settings) as (env, engine_id):
            await lives(atoll.get_sandbox(env.Sandbox, name))
        await clear(cluster, namespace, engine_id)
        async with serving(settings) as (env, _):  # it asks for the Pod, which is gone
            sandbox = atoll.get_sandbox(env.Sandbox, name)
            assert (await sandbox.exec("true")).exit_code == 0
            await sandbox.destroy()
        seen = set(asked)
    given = {(r.group, r.resource, verb) for r in needed(replicas=replicas) for verb in r.verbs}
    assert seen <= given
    assert given - seen <= (set(RARE) if replicas else set())


async def test_what_is_not_its_own_is_refused(tmp_path: Path) -> None:
    namespace = clusters.settings().namespace
    async with clusters.connected() as cluster, account(cluster, namespace, replicas=True) as token:
        engine = await Api.connect(kubeconfig(token, tmp_path))
        try:
            for path in (
                api.path("kube-system", "secrets"),
                api.path(namespace, "configmaps"),
                "/api/v1/nodes",
            ):
                with pytest.raises(ApiError) as refused:
                    await engine.call("GET", path)
                assert refused.value.status == 403
        finally:
            await engine.close()
