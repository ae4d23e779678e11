"""Images, layers and roots in a cluster: nodes get the images, claims hold the files.

They implement the interfaces of `atoll.engine.parts`, so that the engine takes the same steps as on
one machine. What a cluster does otherwise, or cannot do, is refused by a typed error and is in the
table of the cluster's page.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from atoll.cluster_settings import ClusterSettings
from atoll.engine.bare.parts import BareConfig, BareImage, Storeless
from atoll.errors import NotSupportedByRuntimeError
from atoll.images.build import BuildNetwork
from atoll.images.steps import Progress
from atoll.runtime.kubernetes import api, manifest, status
from atoll.runtime.kubernetes.api import Api, ApiError
from atoll.wire.sandbox import ImageInfo


class ClusterImages:
    """References that the nodes resolve; what is in an image only its Pods know."""

    async def obtain(self, reference: str) -> BareImage:
        """Return the image of this name, unseen."""
        return BareImage(reference, config=BareConfig(workdir=""))

    async def hold(self, digest: str, holder: str, state_dir: Path) -> None:
        """Nodes keep their own images."""

    async def release(self, digest: str, holder: str) -> None:
        """Nodes keep their own images."""

    async def trust(self) -> None:
        """Images trust what they trust."""

    async def list(self) -> list[ImageInfo]:
        """Which images nodes have is not known."""
        return []

    async def build_base(self, progress: Progress) -> BareImage:
        """Refuse: clusters take images from registries."""
        _refuse("images cannot be built in a cluster")

    async def build(
        self,
        folder: Path,
        dockerfile: str,
        *,
        tag: str,
        network: BuildNetwork | None,
        progress: Progress,
    ) -> BareImage:
        """Refuse: clusters take images from registries."""
        _refuse(f"{tag} cannot be built in a cluster")


class ClusterLayers(Storeless):
    """The files of each sandbox that outlive its Pods: one volume claim.

    Args:
        cluster: the API.
        settings: what claims ask for.
        engine_id: what they are labelled with.
    """

    def __init__(self, cluster: Api, settings: ClusterSettings, engine_id: str) -> None:
        self._api, self._settings, self._engine_id = cluster, settings, engine_id
        self.snapshots = NoSnapshots()

    async def create(self, layer_id: str, size_bytes: int) -> None:
        """Ask for a volume of *size_bytes*; it is there when the first Pod needs it."""
        if not self._settings.persist:
            return
        wanted = manifest.claim(layer_id, size_bytes, self._engine_id, self._settings)
        try:
            await self._api.create(self._path(), wanted)
        except ApiError as error:
            if not error.conflict:
                raise status.unavailable(error) from error

    async def exists(self, layer_id: str) -> bool:
        """Whether the claim is there; without claims no files are missed."""
        if not self._settings.persist:
            return True
        try:
            return await self._api.get(self._path(manifest.claim_name(layer_id))) is not None
        except ApiError as error:
            raise status.unavailable(error) from error

    async def attach(self, layer_id: str) -> Path:
        """Refuse: volumes are attached by nodes."""
        _refuse("volumes of a cluster are not files of the engine's host")

    async def usage(self, layer_id: str) -> int:
        """What a volume holds is known to its storage only."""
        return 0

    async def duplicate(self, layer_id: str, copy_id: str, size_bytes: int) -> None:
        """Refuse: named volumes are on the engine's own disk."""
        _refuse("sandboxes in a cluster have no copies of named volumes")

    async def resize(self, layer_id: str, size_bytes: int) -> None:
        """Refuse: named volumes are on the engine's own disk."""
        _refuse("named volumes cannot be resized in a cluster")

    async def delete(self, layer_id: str) -> None:
        """Delete the claim; its volume goes as its class says."""
        try:
            await self._api.delete(self._path(manifest.claim_name(layer_id)))
        except ApiError as error:
            raise status.unavailable(error) from error

    async def list(self) -> list[str]:
        """Return the layer of every claim of this engine."""
        query = {"labelSelector": manifest.selector(self._engine_id)}
        try:
            found = await self._api.call("GET", self._path(), query=query)
        except ApiError as error:
            raise status.unavailable(error) from error
        prefix = manifest.claim_name("")
        claims = [one["metadata"] for one in found["items"]]
        return [
            one["name"].removeprefix(prefix)
            for one in claims
            if "deletionTimestamp" not in one  # it stays until its Pod is gone
        ]

    def _path(self, name: str = "") -> str:
        return api.path(self._settings.namespace, "persistentvolumeclaims", name)


class NoSnapshots:
    """Claims have no snapshots that work with every storage."""

    async def take(self, layer_id: str, snapshot_id: str) -> None:
        """Refuse."""
        _refuse("sandboxes in a cluster have no snapshots")

    async def clone(self, snapshot_id: str, layer_id: str, size_bytes: int) -> None:
        """Refuse."""
        _refuse("sandboxes in a cluster cannot be forked")

    async def attach(self, snapshot_id: str) -> Path:
        """Refuse."""
        _refuse("sandboxes in a cluster have no snapshots")

    async def usage(self, snapshot_id: str) -> int:
        """There are none."""
        return 0

    async def delete(self, snapshot_id: str) -> None:
        """There are none."""

    async def list(self) -> list[str]:
        """There are none."""
        return []


class ClusterRoots:
    """Roots are made by the nodes."""

    async def mount(
        self, host_ref: str, lowers: Sequence[Path], layer_id: str, id_base: int, id_count: int
    ) -> Path:
        """Return a path that stands for the Pod's own root."""
        return Path("/")

    async def attach(self, host_ref: str, target: str, layer_id: str, *, read_only: bool) -> None:
        """Refuse: named volumes are on the engine's own disk."""
        _refuse(f"no named volume can be mounted at {target} in a cluster")

    async def unmount(self, host_ref: str) -> None:
        """Nothing is mounted here."""

    async def list(self) -> list[str]:
        """Nothing is mounted here."""
        return []


def _refuse(what: str) -> NoReturn:
    raise NotSupportedByRuntimeError(what, context={"runtime": "kubernetes"})
