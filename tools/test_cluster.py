"""Runs the tests, or the measurements, that need a Kubernetes cluster: on the one that a kubeconfig names, or on a kit's.

A kit is a script with the verbs ``up``, ``load IMAGE.tar`` and ``down`` that makes a cluster of
network namespaces on this machine. Nodes there have no registry and no storage: images of the agent
and of the base are made from what this machine has, and volumes are directories, made ahead.

On anybody's cluster the namespace and the two images are there already; ATOLL_CLUSTER_* name them
as they do for an engine.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path

from tools import kit_images

from atoll.runtime.kubernetes import api
from atoll.runtime.kubernetes.api import Api, ApiError

NETWORK = "/var/run/netns/bx-cp"
"""Where the kit's API is reached."""

OUTAGES = "50"
"""Schedules of outages: each takes about a minute."""

SPARE = 5
"""Volumes kept ready: a claim is then bound at once."""

INSTALLED = "tests/repository/test_installed.py"

TESTS = (
    ("tests/e2e/runtime/kubernetes", "tests/e2e/engine/cluster", INSTALLED),
    ("tests/conformance", "--level", "kubernetes"),
)
"""Runs of pytest; arguments take their place."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", default="")
    parser.add_argument("--kit", default="")
    parser.add_argument("--engine-image", default="", help="in the cluster's registry")
    parser.add_argument("--bench", action="store_true", help="measure, instead of testing")
    parser.add_argument("--keep", action="store_true")
    given, arguments = parser.parse_known_args()
    if given.keep:
        asyncio.run(keep(given.kit))
    if given.bench:
        os.environ["ATOLL_RUNTIME_DEFAULT"] = "kubernetes"
        arguments = ["-m", "bench.pods", *arguments]
    if given.engine_image:
        os.environ["ATOLL_TEST_ENGINE_IMAGE"] = given.engine_image
        os.environ.setdefault("ATOLL_CLUSTER_AGENT_IMAGE", given.engine_image)
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
        images = load_images(
            kit, engine=not arguments or any(INSTALLED in one for one in arguments)
        )
        os.environ["ATOLL_CLUSTER_AGENT_IMAGE"] = images.agent
        os.environ["ATOLL_TEST_ENGINE_IMAGE"] = images.engine
        os.environ["ATOLL_TEST_KIT"] = str(cache / "run")
        os.environ["ATOLL_CLUSTER_PULL_POLICY"] = "Never"
        os.environ["ATOLL_CLUSTER_ENFORCES_POLICIES"] = "false"  # a bridge does not
        os.environ["ATOLL_CLUSTER_KIT"] = str(kit.resolve())
        os.environ.setdefault("ATOLL_OUTAGES", OUTAGES)
        return run(kubeconfig, arguments, ["nsenter", f"--net={NETWORK}"], str(kit))
    finally:
        if not running:
            subprocess.run([kit, "down"], check=False)


def run(kubeconfig: Path, arguments: list[str], enter: list[str], kit: str = "") -> int:
    os.environ["ATOLL_CLUSTER_KUBECONFIG"] = str(kubeconfig)
    keeper = None
    if kit:
        keep = [*enter, sys.executable, "-m", "tools.test_cluster", "--keep", "--kit", kit]
        keeper = subprocess.Popen(keep)
    try:
        python = [*enter, sys.executable]
        if arguments[1:2] == ["bench.pods"]:
            return subprocess.run([*python, *arguments], check=False).returncode
        test = [*python, "-m", "pytest", "-m", "slow or not slow"]
        if arguments:
            return subprocess.run([*test, *arguments], check=False).returncode
        return sum(subprocess.run([*test, *tests], check=False).returncode for tests in TESTS)
    finally:
        if keeper:
            keeper.terminate()
            keeper.wait()


def load_images(kit: Path, *, engine: bool) -> kit_images.Wanted:
    """Load the images that the nodes lack; return their names.

    Args:
        engine: whether that of the engine is needed, too.
    """
    told = subprocess.run([kit, "kubectl", "get", "nodes", "-o", "json"], stdout=-1, check=True)
    with tempfile.TemporaryDirectory() as folder:
        wanted = kit_images.Wanted.now(Path(folder))
        missing = {wanted.agent, kit_images.BASE, *([wanted.engine] if engine else ())}
        missing -= _on_every_node(json.loads(told.stdout)["items"])
        for made in wanted.make(Path(folder), engine=engine) if missing else ():
            if made.name in missing:
                archive = Path(folder, "image.tar")
                made.pack(archive)
                subprocess.run([kit, "load", archive], check=True)
    return wanted


def _on_every_node(nodes: list[api.Object]) -> set[str]:
    """Return the images that none of them lacks: a node removes some when its disk fills."""
    held = [
        {name for image in node["status"]["images"] for name in image["names"] or ()}
        for node in nodes
    ]
    return set.intersection(*held)


async def keep(kit: str) -> None:
    """Be what a cluster has that a kit lacks."""
    async with asyncio.TaskGroup() as group:
        group.create_task(keep_volumes())
        group.create_task(start_again(kit))


async def start_again(kit: str) -> None:
    """Start what tests of outages have ended, as a node's own init would: by a file of its name."""
    run_dir = Path(os.environ["ATOLL_CLUSTER_KUBECONFIG"]).parent
    wanted = run_dir / "again"
    wanted.mkdir(exist_ok=True)
    kubelets = {file.name: Program(file) for file in (run_dir / "pids").glob("kubelet-*")}
    while True:
        for file in wanted.iterdir():
            if file.name in kubelets:
                kubelets[file.name].start()
            elif kit and file.name == "apiserver":
                await (await asyncio.create_subprocess_exec(kit, "apiserver-start")).wait()
            file.unlink()
        await asyncio.sleep(0.1)


class Program:
    """A program that runs in namespaces of its own; with it they would go, but for these handles."""

    def __init__(self, pid_file: Path) -> None:
        self._pid_file, pid = pid_file, int(pid_file.read_text())
        self._argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
        told = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")[:-1]
        self._environ = dict(one.split(b"=", 1) for one in told)
        self._spaces = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for kind in ("mnt", "net")]

    def start(self) -> None:
        """Start it again, where it was."""
        mounts, net = (f"/proc/self/fd/{fd}" for fd in self._spaces)
        done = subprocess.Popen(
            ["nsenter", f"--mount={mounts}", f"--net={net}", *self._argv],
            env=self._environ, pass_fds=self._spaces, start_new_session=True,
            stdin=-3, stdout=-3, stderr=-3,
        )  # fmt: skip
        self._pid_file.write_text(f"{done.pid}\n")


async def keep_volumes() -> None:
    """Keep some volumes ready, as a provisioner would make them when they are claimed."""
    cluster = await Api.connect(Path(os.environ["ATOLL_CLUSTER_KUBECONFIG"]))
    with tempfile.TemporaryDirectory(prefix="atoll-volumes-", ignore_cleanup_errors=True) as base:
        while True:
            with suppress(ApiError):  # tests stop it
                await _provide(cluster, Path(base))
            await asyncio.sleep(0.3)


async def _provide(cluster: Api, base: Path) -> None:
    volumes = "/api/v1/persistentvolumes"
    found = (await cluster.call("GET", volumes))["items"]
    phases = [one["status"].get("phase") for one in found]
    for one, phase in zip(found, phases, strict=True):
        if phase in {"Released", "Failed"}:
            await cluster.delete(f"{volumes}/{one['metadata']['name']}")
    for _ in range(SPARE - sum(phase in {"Available", "Pending", None} for phase in phases)):
        await cluster.create(volumes, _volume(base))


def _volume(base: Path) -> api.Object:
    name = f"test-{uuid.uuid4().hex[:8]}"
    (base / name).mkdir()
    (base / name).chmod(0o777)  # an engine is not root, and no kubelet changes owners
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
