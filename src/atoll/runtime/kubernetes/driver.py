"""Drives sandboxes that are Pods: I/O only; what a Pod is, and what its status means, are pure.

Everything that a start makes has its `host_ref` as name and the engine's label, so that what a
crash leaves is found by `list`. Its files are on a claim that outlives it (`claims`).
"""

import asyncio
import json
import shutil
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

from atoll.errors import ContainerUnavailableError, NotSupportedByRuntimeError
from atoll.host import tcp
from atoll.runtime.base import TOKEN_FILE, Container, ContainerSpec, Usage
from atoll.runtime.configuration import configuration
from atoll.runtime.kubernetes import api, manifest, status
from atoll.runtime.kubernetes.api import Api, ApiError, Object
from atoll.runtime.kubernetes.mirror import Mirror
from atoll.runtime.kubernetes.tokens import token
from atoll.settings import Settings

REMOVAL: Final = 30.0
"""Seconds a node has to say that a Pod has ended. One on a node that is cut off stays: it may still run."""


LISTENING: Final = 0.05
"""Seconds between two looks whether an agent listens."""


class Owner(NamedTuple):
    """Whose Pods these are."""

    engine_id: str  # what everything of it is labelled with
    key: bytes  # what the tokens of its agents are made from


class KubernetesRuntime:
    """Implements `Runtime`.

    Args:
        cluster: the API.
        pods: those of this engine.
        settings: all settings.
        owner: whose Pods these are.
    """

    name = "kubernetes"
    level = "kubernetes"
    by_namespace = False
    takes_files = False
    own_ids = False
    unlimited = ("pids",)  # the kubelet's to limit

    def __init__(self, cluster: Api, pods: Mirror, settings: Settings, owner: Owner) -> None:
        self._api, self._pods, self._settings, self._owner = cluster, pods, settings.cluster, owner
        self._timeout = settings.runtime.start_timeout
        self._base = settings.storage.state_dir / "run"

    @classmethod
    async def open(cls, cluster: Api, settings: Settings, owner: Owner) -> Self:
        """Return the runtime, which knows the Pods there are.

        Raises:
            ApiError: they cannot be listed.
        """
        selector = manifest.selector(owner.engine_id)
        pods = Mirror(cluster, api.path(settings.cluster.namespace, "pods"), selector)
        await pods.open()
        return cls(cluster, pods, settings, owner)

    async def close(self) -> None:
        """Follow the Pods no more; they run on."""
        await self._pods.close()

    async def prepare(self, host_ref: str, id_base: int, id_count: int) -> None:
        """See `Runtime.prepare`; there is nothing to do."""

    async def start(self, spec: ContainerSpec) -> Container:
        """See `Runtime.start`."""
        try:
            await self._make(spec)
            async with asyncio.timeout(self._timeout):
                await self._listens(spec.host_ref, await self._runs(spec.host_ref))
        except BaseException as error:
            seen = self._pods.get(spec.host_ref)
            await asyncio.shield(self._remove(spec.host_ref, wait=False))
            if isinstance(error, TimeoutError):
                raise status.late(seen, self._timeout) from None
            if isinstance(error, ApiError):
                raise status.unavailable(error) from error
            raise
        # Nobody needs it any more; a Pod is never restarted.
        await self._delete("secrets", spec.host_ref)
        _keep(spec.run_dir, token(self._owner.key, spec.host_ref))
        return Container(host_ref=spec.host_ref, pid=0)

    async def _make(self, spec: ContainerSpec) -> None:
        told = manifest.secret(spec.host_ref, self._agent_config(spec), self._owner.engine_id)
        await self._api.create(self._path("secrets"), told)
        await self._api.create(
            self._path("pods"), manifest.pod(spec, self._owner.engine_id, self._settings)
        )

    def _agent_config(self, spec: ContainerSpec) -> str:
        address = {"host": "0.0.0.0", "port": self._settings.agent_port}
        told = configuration(spec, tcp=address, token=token(self._owner.key, spec.host_ref))
        return json.dumps(told)

    async def _runs(self, host_ref: str) -> str:
        """Return the address of a Pod once it runs."""
        pod = await self._pods.until(
            host_ref, lambda pod: bool(status.address(pod) or status.failure(pod)), None
        )
        if error := status.failure(pod):
            raise error
        return str(status.address(pod))

    async def _listens(self, host_ref: str, address: str) -> None:
        """Wait until the agent does: a container counts as running before its program has begun to."""
        while True:
            with suppress(ConnectionError):
                (await tcp.connect(address, self._settings.agent_port)).close()
                return
            if error := status.failure(self._pods.get(host_ref)):
                raise error
            await asyncio.sleep(LISTENING)

    async def dial(self, run_dir: Path, host_ref: str) -> socket.socket:
        """See `Runtime.dial`."""
        address = status.address(self._pods.get(host_ref) or await self._ask(host_ref))
        if address is None:
            raise ConnectionRefusedError(f"Pod {host_ref} does not run")
        _keep(run_dir, token(self._owner.key, host_ref))
        return await tcp.connect(address, self._settings.agent_port)

    async def find(self, host_ref: str) -> Container | None:
        """See `Runtime.find`."""
        known = status.address(self._pods.get(host_ref))
        # Another engine may have started it just now: that it is not there only the API can say.
        running = known or status.address(await self._ask(host_ref))
        return Container(host_ref=host_ref, pid=0) if running else None

    async def _ask(self, host_ref: str) -> Object | None:
        try:
            return await self._pods.ask(host_ref)
        except ApiError as error:
            raise status.unavailable(error) from error

    async def ended(self, host_ref: str) -> None:
        """See `Runtime.ended`."""
        await self._pods.until(host_ref, status.ended, None)

    async def list(self) -> list[str]:
        """See `Runtime.list`."""
        query = {"labelSelector": manifest.selector(self._owner.engine_id)}
        secrets = await self._api.call("GET", self._path("secrets"), query=query)
        named = {one["metadata"]["name"] for one in secrets["items"]}
        return sorted(named | {pod["metadata"]["name"] for pod in self._pods.all()})

    async def remove(self, host_ref: str) -> None:
        """See `Runtime.remove`.

        Raises:
            ContainerUnavailableError: the Pod is still there: its node does not answer, and what
                runs on it may be running.
        """
        await self._remove(host_ref, wait=True)
        shutil.rmtree(self._base / host_ref / "container", ignore_errors=True)

    async def _remove(self, host_ref: str, *, wait: bool) -> None:
        try:
            await self._delete("secrets", host_ref)
            if not await self._delete("pods", host_ref) or not wait:
                return
            await self._pods.until(host_ref, status.stopped, REMOVAL)
        except ApiError as error:
            raise status.unavailable(error) from error
        except TimeoutError:
            raise ContainerUnavailableError(
                "the sandbox's node does not confirm that it has ended",
                context={"reason": "node"},
                suggestion="wait for the node, or delete it from the cluster if it is gone for good",
                retry_after=10.0,
            ) from None

    async def end(self, host_ref: str, timeout: float) -> bool:
        """See `Remote.end`."""
        try:
            await self._delete("pods", host_ref)
            await self._pods.ask(host_ref)
            await self._pods.until(host_ref, status.stopped, timeout)
        except ApiError as error:
            raise status.unavailable(error) from error
        except TimeoutError:
            return False
        return True

    async def abandon(self, host_ref: str) -> None:
        """See `Remote.abandon`. It is this start's Pod only: no other has its name, nor its uid."""
        try:
            if found := await self._pods.ask(host_ref):
                path, uid = self._path("pods", host_ref), found["metadata"]["uid"]
                await self._api.delete(path, grace=0, uid=uid)
                await self._pods.ask(host_ref)
        except ApiError as error:
            if not error.conflict:
                raise status.unavailable(error) from error

    async def pause(self, host_ref: str) -> None:
        """Refuse: nobody outside a Pod can freeze it."""
        raise NotSupportedByRuntimeError(
            "Pods cannot be frozen", suggestion='use sleep_mode="stop"'
        )

    async def resume(self, host_ref: str) -> None:
        """See `Runtime.resume`; nothing is ever frozen."""

    async def rename(self, host_ref: str, hostname: str) -> None:
        """See `Runtime.rename`; a Pod keeps the name it was made with."""

    async def usage(self, host_ref: str) -> Usage:
        """Refuse: what a Pod uses is known to its node."""
        raise NotSupportedByRuntimeError(
            "the cluster tells what Pods use", suggestion="ask its metrics: kubectl top pod"
        )

    async def _delete(self, kind: str, name: str) -> bool:
        return await self._api.delete(self._path(kind, name))

    def _path(self, kind: str, name: str = "") -> str:
        return api.path(self._settings.namespace, kind, name)


def _keep(run_dir: Path, secret: str) -> None:
    """Leave the token where the link looks for it."""
    file = run_dir / TOKEN_FILE
    if not file.exists():
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)
        file.write_text(secret)
