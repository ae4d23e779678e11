"""Accounts with the rights that the manifests give, and no other."""

import json
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import yaml
from tools.render_chart import MANIFESTS

import clusters
from atoll.runtime.kubernetes import api
from atoll.runtime.kubernetes.api import Api

RBAC = "apis/rbac.authorization.k8s.io/v1"
COLLECTIONS = {
    "ServiceAccount": ("serviceaccounts", "api/v1"),
    "Role": ("roles", RBAC),
    "RoleBinding": ("rolebindings", RBAC),
}


@asynccontextmanager
async def account(cluster: Api, namespace: str, *, replicas: bool) -> AsyncIterator[str]:
    """Make the account of the manifest, with its rights, by a name of its own; yield its token."""
    name = f"atoll-test-{secrets.token_hex(4)}"
    text = [*MANIFESTS][replicas].read_text(encoding="utf-8").replace("atoll-engine", name)
    async with AsyncExitStack() as stack:
        for made in yaml.safe_load_all(text.replace("namespace: atoll", f"namespace: {namespace}")):
            if made["kind"] in COLLECTIONS:
                plural, group = COLLECTIONS[made["kind"]]
                await cluster.create(api.path(namespace, plural, group=group), made)
                path = api.path(namespace, plural, name, group=group)
                stack.push_async_callback(cluster.delete, path)
        wanted = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600},
        }
        path = f"{api.path(namespace, 'serviceaccounts', name)}/token"
        yield (await cluster.create(path, wanted))["status"]["token"]


def kubeconfig(token: str, folder: Path) -> Path:
    """Write how the cluster is reached by *token*."""
    told = yaml.safe_load(Path(clusters.KUBECONFIG).read_text(encoding="utf-8"))
    context = next(one for one in told["contexts"] if one["name"] == told["current-context"])
    told["users"] = [{"name": "engine", "user": {"token": token}}]
    context["context"]["user"] = "engine"
    told["contexts"] = [context]
    path = folder / "kubeconfig"
    path.write_text(json.dumps(told), encoding="utf-8")
    return path
