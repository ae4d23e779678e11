"""The manifests, applied to a real cluster: engines come up with what they give, and serve.

The kit of `make test-cluster` lacks what clusters have: Services, a runtime that sees what its kubelet
mounts, volumes that whoever mounts them may write to. There engines are told where the API is, their
token is put in its place, and their volume is made.
"""

import asyncio
import base64
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import helm_python
import pytest
import yaml
from tools.render_chart import CHART, MANIFESTS

import atoll
import clusters
from atoll.runtime.kubernetes import api
from atoll.runtime.kubernetes.api import Api, ApiError

IMAGE = os.environ.get("ATOLL_TEST_ENGINE_IMAGE", "")
KIT = os.environ.get("ATOLL_TEST_KIT", "")

pytestmark = [
    clusters.needed,
    pytest.mark.skipif(not IMAGE, reason="runs by make test-cluster with ENGINE_IMAGE"),
    pytest.mark.timeout(400),
]

ALONE, REPLICAS = MANIFESTS
READY = 240.0
"""Seconds until engines must be ready, on a node that has to pull their image."""

GROUPS = {
    "Deployment": "apis/apps/v1",
    "NetworkPolicy": "apis/networking.k8s.io/v1",
    "Role": "apis/rbac.authorization.k8s.io/v1",
    "RoleBinding": "apis/rbac.authorization.k8s.io/v1",
}


VOLUMES = "/api/v1/persistentvolumes"


def collection(made: dict[str, Any], namespace: str) -> str:
    kind = made["kind"]
    if kind == "Namespace":
        return "/api/v1/namespaces"
    if kind == "CustomResourceDefinition":
        return "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    plural = "networkpolicies" if kind == "NetworkPolicy" else f"{kind.lower()}s"
    return api.path(namespace, plural, group=GROUPS.get(kind, "api/v1"))


def objects(path: Path, namespace: str, key: str) -> list[dict[str, Any]]:
    """Return what a manifest makes, for this cluster, and the Secret that it needs."""
    text = path.read_text(encoding="utf-8").replace("namespace: atoll", f"namespace: {namespace}")
    found: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    found[0]["metadata"]["name"] = namespace
    given = clusters.settings()
    told = {
        "ATOLL_CLUSTER_NAMESPACE": namespace,
        "ATOLL_CLUSTER_AGENT_IMAGE": given.agent_image,
        "ATOLL_CLUSTER_PULL_POLICY": given.pull_policy,
        "ATOLL_RUNTIME_START_TIMEOUT": "120",
    }
    if KIT:
        told |= {**server(), "ATOLL_CLUSTER_ENFORCES_POLICIES": "false"}
    for made in found:
        if made["kind"] == "Deployment":
            (engine,) = made["spec"]["template"]["spec"]["containers"]
            engine["image"], engine["imagePullPolicy"] = IMAGE, given.pull_policy
            kept = [each for each in engine["env"] if each["name"] not in told]
            engine["env"] = kept + [{"name": name, "value": told[name]} for name in told]
    return [*found, secret(namespace, key)]


def server() -> dict[str, str]:
    """Return the variables by which a program in a Pod finds the API of a kit."""
    config = yaml.safe_load(Path(clusters.KUBECONFIG).read_text(encoding="utf-8"))
    address = urlsplit(config["clusters"][0]["cluster"]["server"])
    return {
        "KUBERNETES_SERVICE_HOST": str(address.hostname),
        "KUBERNETES_SERVICE_PORT": str(address.port),
    }


def secret(namespace: str, key: str) -> dict[str, Any]:
    about = {"name": "atoll-key", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": about, "stringData": {"api-key": key}}


def values(**own: object) -> dict[str, Any]:
    """Return the values of the chart for this cluster."""
    given = clusters.settings()
    repository, _, tag = IMAGE.rpartition(":")
    cluster: dict[str, object] = {"enforces_policies": False} if KIT else {}
    told = server() if KIT else {}
    return {
        "image": {"repository": repository, "tag": tag, "pullPolicy": given.pull_policy},
        "settings": {"runtime": {"start_timeout": 120}, "cluster": cluster},
        "extraEnv": [{"name": name, "value": value} for name, value in told.items()],
        **own,
    }


async def provide_tokens(cluster: Api, namespace: str) -> None:
    """Put the token of each engine where a kubelet of the kit has put it, out of its Pod's sight."""
    while True:
        found = await cluster.call("GET", api.path(namespace, "secrets"))
        for secret in found["items"]:
            if secret["metadata"]["name"].startswith("atoll-engine-token"):
                pattern = f"nodes/*/kubelet/pods/*/volumes/*/{secret['metadata']['name']}"
                for folder in Path(KIT).glob(pattern):
                    for name, value in secret["data"].items():
                        (folder / name).write_bytes(base64.b64decode(value))
        await asyncio.sleep(0.2)


def volume(namespace: str, folder: Path) -> dict[str, Any]:
    """Return a volume for the engine's records."""
    folder.chmod(0o777)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{namespace}-state"},
        "spec": {
            "capacity": {"storage": "100Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": namespace, "name": "atoll-state"},
            "hostPath": {"path": str(folder)},
        },
    }


async def ready(cluster: Api, namespace: str, count: int) -> list[str]:
    """Wait until *count* engines are ready; return their addresses."""
    path = api.path(namespace, "pods")
    query = {"labelSelector": "app.kubernetes.io/component=engine"}
    async with asyncio.timeout(READY):
        while True:
            pods = (await cluster.call("GET", path, query=query))["items"]
            up = [pod["status"]["podIP"] for pod in pods if _is_ready(pod)]
            if len(up) == count:
                return up
            await asyncio.sleep(0.5)


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


@asynccontextmanager
async def prepared(folder: Path) -> AsyncIterator[tuple[Api, str]]:
    """Yield the cluster and a name for a namespace, with what a kit lacks for it."""
    namespace = f"{clusters.settings().namespace}-{secrets.token_hex(3)}"
    async with clusters.connected() as cluster, AsyncExitStack() as stack:
        stack.push_async_callback(cluster.delete, f"/api/v1/namespaces/{namespace}")
        if KIT:
            stack.push_async_callback(cluster.delete, f"{VOLUMES}/{namespace}-state")
            await cluster.create(VOLUMES, volume(namespace, folder))
            providing = asyncio.create_task(provide_tokens(cluster, namespace))
            stack.callback(providing.cancel)
        yield cluster, namespace


@asynccontextmanager
async def installed(path: Path, key: str, folder: Path) -> AsyncIterator[list[str]]:
    """Apply a manifest in a namespace of its own; yield the addresses of its engines."""
    async with prepared(folder) as (cluster, namespace):
        made = objects(path, namespace, key)
        for one in made:
            with suppress(*([ApiError] if one["kind"] == "CustomResourceDefinition" else [])):
                await cluster.create(collection(one, namespace), one)
        (deployment,) = (one for one in made if one["kind"] == "Deployment")
        yield await ready(cluster, namespace, deployment["spec"]["replicas"])


def connected(address: str, key: str) -> atoll.Environment:
    return atoll.connect(f"http://{address}:8787", api_key=key)


async def test_the_quick_start_runs_against_an_engine_in_the_cluster(tmp_path: Path) -> None:
    key = secrets.token_hex(16)
    async with installed(ALONE, key, tmp_path) as (address,), connected(address, key) as env:
        sandbox = atoll.get_sandbox(env.Sandbox, "my-sandbox")
        result = await sandbox.exec('python3 -c "print(2 + 2)"')
        assert (result.stdout, result.exit_code) == ("4\n", 0)
        await sandbox.write_file("/workspace/notes.txt", "kept\n")
        await sandbox.stop()
        assert (await sandbox.exec(["wc", "-c", "notes.txt"])).stdout == "5 notes.txt\n"
        with pytest.raises(atoll.SandboxError):
            async with connected(address, "no such key") as other:
                await atoll.get_sandbox(other.Sandbox, "my-sandbox").exec("true")
        await sandbox.destroy()


async def test_what_one_engine_made_another_serves(tmp_path: Path) -> None:
    key = secrets.token_hex(16)
    async with (
        installed(REPLICAS, key, tmp_path) as (first, second),
        connected(first, key) as here,
        connected(second, key) as there,
    ):
        await atoll.get_sandbox(here.Sandbox, "shared").write_file("/workspace/file", "one\n")
        sandbox = atoll.get_sandbox(there.Sandbox, "shared")
        assert (await sandbox.read_file("/workspace/file")).content == "one\n"
        await sandbox.destroy()


async def test_helm_installs_upgrades_and_removes_it_but_for_what_is_data(tmp_path: Path) -> None:
    """With the values of an upgrade the engine is another one; the sandbox and its files are not."""
    key = secrets.token_hex(16)
    async with prepared(tmp_path) as (cluster, namespace):
        await cluster.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        await cluster.create(api.path(namespace, "secrets"), secret(namespace, key))
        helm = helm_python.Config(kubeconfig_path=clusters.KUBECONFIG, namespace=namespace)
        options: dict[str, Any] = {"namespace": namespace, "wait": "legacy", "timeout": int(READY)}
        first = await asyncio.to_thread(helm.install, CHART, "atoll", values(), **options)
        assert first["status"] == "deployed"
        (before,) = await ready(cluster, namespace, 1)
        async with connected(before, key) as env:
            await atoll.get_sandbox(env.Sandbox, "kept").write_file("/workspace/file", "one\n")
        larger = values(resources={"requests": {"cpu": "100m", "memory": "128Mi"}})
        second = await asyncio.to_thread(helm.upgrade, CHART, "atoll", larger, **options)
        assert second["revision"] == 2
        (after,) = await ready(cluster, namespace, 1)
        async with connected(after, key) as env:
            sandbox = atoll.get_sandbox(env.Sandbox, "kept")
            assert (await sandbox.read_file("/workspace/file")).content == "one\n"
            assert (await sandbox.info()).generation == 1
            await sandbox.destroy()
        await asyncio.to_thread(helm.uninstall, "atoll")
        claims = await cluster.call("GET", api.path(namespace, "persistentvolumeclaims"))
        assert "atoll-state" in {one["metadata"]["name"] for one in claims["items"]}
