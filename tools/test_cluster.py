"""Runs the tests that need a Kubernetes cluster: on the one that a kubeconfig names, or on a kit's.

A kit is a script with the verbs ``up``, ``load IMAGE.tar`` and ``down`` that makes a cluster of
network namespaces on this machine. Nodes there have no registry and no storage: images of the agent
and of the base are made from what this machine has, and volumes are directories, made ahead.

On anybody's cluster the namespace and the two images are there already; ATOLL_CLUSTER_* name them
as they do for an engine.
"""

import argparse
import asyncio
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import uuid
from pathlib import Path
from typing import Any

from atoll.images.store import ImageStore
from atoll.load_settings import load
from atoll.runtime.kubernetes import api
from atoll.runtime.kubernetes.api import Api
from atoll.runtime.oci import agent_bundle
from atoll.runtime.oci.agent_bundle import AgentBundle

AGENT = "docker.io/atoll/engine"
BASE = "docker.io/atoll/base:latest"
NETWORK = "/var/run/netns/bx-cp"
"""Where the kit's API is reached."""

SPARE = 5
"""Volumes kept ready: a claim is then bound at once."""

TESTS = (
    ("tests/e2e/runtime/kubernetes", "tests/e2e/engine/cluster"),
    ("tests/conformance", "--level", "kubernetes"),
)
"""Runs of pytest; arguments take their place."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", default="")
    parser.add_argument("--kit", default="")
    parser.add_argument("--keep-volumes", action="store_true")
    given, arguments = parser.parse_known_args()
    if given.keep_volumes:
        asyncio.run(keep_volumes())
    if given.kubeconfig:
        return run(Path(given.kubeconfig), arguments, [])
    if not given.kit:
        print("test-cluster: no cluster: give KUBECONFIG=, or KIT= with a script that makes one")
        return 1
    return on_kit(Path(given.kit), arguments)


def on_kit(kit: Path, arguments: list[str]) -> int:
    cache = Path(os.environ.get("CLUSTER_CACHE", Path.home() / ".cache" / "atoll-cluster"))
    kubeconfig = cache / "run" / "admin.kubeconfig"
    if not cache.is_dir():
        subprocess.run([kit.with_name("setup.sh")], check=True)
    running = kubeconfig.exists()
    try:
        if not running:
            subprocess.run([kit, "up"], check=True)
        namespace = os.environ.setdefault("ATOLL_CLUSTER_NAMESPACE", "atoll")
        if subprocess.run([kit, "kubectl", "get", "namespace", namespace], check=False).returncode:
            subprocess.run([kit, "kubectl", "create", "namespace", namespace], check=True)
        os.environ["ATOLL_CLUSTER_AGENT_IMAGE"] = load_images(kit)
        os.environ["ATOLL_CLUSTER_PULL_POLICY"] = "Never"
        return run(kubeconfig, arguments, ["nsenter", f"--net={NETWORK}"], volumes=True)
    finally:
        if not running:
            subprocess.run([kit, "down"], check=False)


def run(kubeconfig: Path, arguments: list[str], enter: list[str], *, volumes: bool = False) -> int:
    os.environ["ATOLL_CLUSTER_KUBECONFIG"] = str(kubeconfig)
    keeper = None
    if volumes:
        keep = [*enter, sys.executable, __file__, "--keep-volumes"]
        keeper = subprocess.Popen(keep)
    try:
        test = [*enter, sys.executable, "-m", "pytest", "-m", "slow or not slow"]
        if arguments:
            return subprocess.run([*test, *arguments], check=False).returncode
        return sum(subprocess.run([*test, *tests], check=False).returncode for tests in TESTS)
    finally:
        if keeper:
            keeper.terminate()
            keeper.wait()


def load_images(kit: Path) -> str:
    """Load both images where the nodes lack them; return the name of the agent's.

    Its tag is its content's, so that runs of several versions may share a kit.
    """
    settings = load().settings
    bundle = asyncio.run(agent_bundle.build(settings.storage.cache_dir))
    agent = f"{AGENT}:{bundle.path.name[:16]}"
    told = subprocess.run([kit, "kubectl", "get", "nodes", "-o", "json"], stdout=-1, check=True)
    if agent.encode() not in told.stdout:
        with tempfile.TemporaryDirectory() as folder:
            for name, root, config in asyncio.run(roots(Path(folder), agent, bundle)):
                archive = Path(folder, "image.tar")
                pack(archive, name, root, config)
                root.unlink()
                subprocess.run([kit, "load", archive], check=True)
    return agent


async def roots(
    folder: Path, name: str, bundle: AgentBundle
) -> list[tuple[str, Path, dict[str, Any]]]:
    """Return name, archive of the root, and configuration of both images."""
    settings = load().settings
    agent = folder / "agent.tar"
    with tarfile.open(agent, "w") as tar:
        for path in ("bin", "opt", "opt/atoll", "tmp", "proc", "sys", "dev", "etc"):
            entry = tarfile.TarInfo(path)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        tar.add("/bin/busybox", "bin/cp")
        tar.add(bundle.path, "opt/atoll/agent")
        entry = tarfile.TarInfo("opt/atoll/agent/lib/loader")
        entry.type, entry.linkname = tarfile.SYMTYPE, bundle.loader
        tar.addfile(entry)
    image = await ImageStore(settings.storage, settings.images).obtain("atoll/base")
    base = folder / "base.tar"
    with tarfile.open(base, "w") as tar:
        for layer in reversed(image.layers):
            tar.add(layer, ".", filter=lambda one: one if one.isreg() or not one.isdev() else None)
    env = [f"{name}={value}" for name, value in image.config.env.items()]
    config = {"Env": env, "WorkingDir": image.config.workdir or "/workspace"}
    return [(name, agent, {}), (BASE, base, config)]


def pack(archive: Path, name: str, root: Path, config: dict[str, Any]) -> None:
    """Write an image of one layer as `docker save` would."""
    layer = hashlib.file_digest(root.open("rb"), "sha256").hexdigest()
    told = {
        "architecture": "amd64",
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer}"]},
    }
    body = json.dumps(told).encode()
    file = f"{hashlib.sha256(body).hexdigest()}.json"
    index = [{"Config": file, "RepoTags": [name], "Layers": [f"{layer}/layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        tar.add(root, f"{layer}/layer.tar")
        for path, content in ((file, body), ("manifest.json", json.dumps(index).encode())):
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


async def keep_volumes() -> None:
    """Keep some volumes ready, as a provisioner would make them when they are claimed."""
    cluster = await Api.connect(Path(os.environ["ATOLL_CLUSTER_KUBECONFIG"]))
    volumes = "/api/v1/persistentvolumes"
    with tempfile.TemporaryDirectory(prefix="atoll-volumes-", ignore_cleanup_errors=True) as base:
        while True:
            found = (await cluster.call("GET", volumes))["items"]
            phases = [one["status"].get("phase") for one in found]
            for one, phase in zip(found, phases, strict=True):
                if phase in {"Released", "Failed"}:
                    await cluster.delete(f"{volumes}/{one['metadata']['name']}")
            for _ in range(
                SPARE - sum(phase in {"Available", "Pending", None} for phase in phases)
            ):
                await cluster.create(volumes, _volume(Path(base)))
            await asyncio.sleep(0.3)


def _volume(base: Path) -> api.Object:
    name = f"test-{uuid.uuid4().hex[:8]}"
    (base / name).mkdir()
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "100Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(base / name)},
        },
    }


if __name__ == "__main__":
    sys.exit(main())
