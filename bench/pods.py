"""What a cluster adds: ``python -m bench.pods``, by `make bench-cluster`.

Beside each number is what the cluster does by itself, in the same run: a Pod of the same image that
only sleeps, and a command by the API's own `pods/exec`.
"""

import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kubernetes_asyncio import config
from kubernetes_asyncio.client import Configuration, CoreV1Api
from kubernetes_asyncio.stream import WsApiClient

import atoll
from atoll.cluster_settings import ClusterSettings
from atoll.load_settings import load
from atoll.runtime.kubernetes import api, manifest, status
from atoll.runtime.kubernetes.api import Api
from bench.table import Report, Row, Samples, timed

RUNS = 5 if "--quick" in sys.argv else 15
AT_ONCE = 10
SETTLE = 10.0
"""Seconds until a node has measured what runs on it."""

_SLEEP = "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done"


class Bare:
    """Pods without an agent."""

    def __init__(self, cluster: Api, settings: ClusterSettings, image: str) -> None:
        self._api, self._settings, self._image = cluster, settings, image
        self._path = api.path(settings.namespace, "pods")
        self._names = (f"bench-{n}-{time.time_ns():x}" for n in itertools.count())

    async def start(self) -> str:
        """Start one; return its name when it runs."""
        name = next(self._names)
        await self._api.create(self._path, self._pod(name))
        while not status.address(await self._api.get(f"{self._path}/{name}")):
            await asyncio.sleep(0.02)
        return name

    async def end(self, name: str) -> None:
        """Delete one."""
        await self._api.delete(f"{self._path}/{name}", grace=0)

    async def memory(self, name: str) -> int | None:
        """Return the bytes that a node says a Pod has in use; None: it does not say."""
        pod = await self._api.get(f"{self._path}/{name}")
        node = pod["spec"]["nodeName"] if pod else ""
        try:
            told = await self._api.call("GET", f"/api/v1/nodes/{node}/proxy/stats/summary")
        except api.ApiError:
            return None
        for one in told["pods"]:
            if one["podRef"]["name"] == name and "memory" in one:
                return int(one["memory"]["workingSetBytes"])
        return None

    def _pod(self, name: str) -> api.Object:
        container = {
            "name": manifest.CONTAINER,
            "image": self._image,
            "imagePullPolicy": self._settings.pull_policy,
            "command": ["/bin/sh", "-c", _SLEEP],
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
        }


@asynccontextmanager
async def pods_exec(settings: ClusterSettings) -> AsyncIterator[CoreV1Api]:
    """Yield the API's own way to run a command in a Pod."""
    own = Configuration()
    await config.load_kube_config(str(settings.kubeconfig), client_configuration=own)
    async with WsApiClient(own) as client:
        yield CoreV1Api(client)


class Bench:
    """All measurements against one private engine."""

    def __init__(self, env: atoll.Environment, bare: Bare, report: Report) -> None:
        self._env, self._bare, self._report = env, bare, report
        self._names = (f"bench-{n}" for n in itertools.count())

    def _new(self) -> atoll.Sandbox:
        return atoll.get_sandbox(self._env.Sandbox, next(self._names), sleep_after="1h")

    async def first_call(self) -> None:
        """Of a new id, beside a Pod that only has to run."""
        ours, theirs = [], []
        for _ in range(RUNS):
            sandbox, start = self._new(), time.perf_counter()
            await sandbox.exec(["true"])
            ours.append(time.perf_counter() - start)
            await sandbox.destroy()
            start = time.perf_counter()
            name = await self._bare.start()
            theirs.append(time.perf_counter() - start)
            await self._bare.end(name)
        self._report.add(
            Row("first call on a new id", Samples(ours), "a bare Pod runs", Samples(theirs), 4.0)
        )

    async def exec(self, settings: ClusterSettings) -> None:
        """Of a sandbox that is awake, beside `pods/exec` in a bare Pod."""
        sandbox = self._new()
        await sandbox.exec(["true"])
        routed = await timed(lambda: sandbox.exec(["true"]), RUNS * 4, warmup=5)
        looks = await timed(lambda: sandbox.exists("/"), RUNS * 4, warmup=5)
        name = await self._bare.start()
        async with pods_exec(settings) as core:

            async def once() -> None:
                await core.connect_get_namespaced_pod_exec(
                    name, settings.namespace, command="true", stdout=True
                )

            theirs = await timed(once, RUNS, warmup=2)
        await self._bare.end(name)
        self._report.add(Row("exec by the agent", routed, "pods/exec", theirs, 0.1))
        self._report.add(Row("routed call (exists)", looks, "pods/exec", theirs, 0.1))
        await sandbox.destroy()

    async def creates(self) -> None:
        """At once, beside as many bare Pods."""
        boxes = [self._new() for _ in range(AT_ONCE)]
        start = time.perf_counter()
        await asyncio.gather(*(box.exec(["true"]) for box in boxes))
        ours = 60 * AT_ONCE / (time.perf_counter() - start)
        await asyncio.gather(*(box.destroy() for box in boxes))
        start = time.perf_counter()
        names = await asyncio.gather(*(self._bare.start() for _ in range(AT_ONCE)))
        theirs = 60 * AT_ONCE / (time.perf_counter() - start)
        await asyncio.gather(*map(self._bare.end, names))
        self._report.add(
            Row(f"creates, {AT_ONCE} at once", Samples([ours]), "bare Pods", Samples([theirs]),
                0.25, at_least=True, unit="a minute")
        )  # fmt: skip

    async def memory(self, cluster: Api, settings: ClusterSettings) -> None:
        """Of a sandbox that ran one command, beside a bare Pod."""
        sandbox, name = self._new(), await self._bare.start()
        await sandbox.exec(["true"])
        query = {"labelSelector": manifest.START_LABEL}
        path = api.path(settings.namespace, "pods")
        pods = (await cluster.call("GET", path, query=query))["items"]
        running = next(pod["metadata"]["name"] for pod in pods if status.address(pod))
        await asyncio.sleep(SETTLE)
        ours, theirs = await self._bare.memory(running), await self._bare.memory(name)
        await self._bare.end(name)
        await sandbox.destroy()
        if not (ours and theirs):
            self._report.skip("memory of a sandbox", "nodes do not tell what Pods use")
            return
        self._report.add(
            Row("memory of a sandbox", Samples([ours / 1e6]), "a bare Pod",
                Samples([theirs / 1e6]), 100.0, unit="MB")
        )  # fmt: skip


async def main() -> None:
    settings = load().settings
    own, report = settings.cluster, Report()
    cluster = await Api.connect(own.kubeconfig)
    bare = Bare(cluster, own, f"docker.io/{settings.images.default}:latest")
    with tempfile.TemporaryDirectory(prefix="atoll-bench-") as folder:
        async with atoll.local(state_dir=Path(folder) / "state") as env:
            bench = Bench(env, bare, report)
            await bench.first_call()
            await bench.exec(own)
            await bench.creates()
            await bench.memory(cluster, own)
    await cluster.close()
    report.show()
    print(report.write(Path(__file__).parent / "results"))


if __name__ == "__main__":
    asyncio.run(main())
