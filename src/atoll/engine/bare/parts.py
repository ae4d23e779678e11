"""Images, layers, roots and networks of the `fake` runtime: directories, and the host itself.

They implement the interfaces of `parts` with nothing beneath, so that the engine takes the same
steps with and without root.
"""

import asyncio
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import msgspec

from atoll.engine.bare.snapshots import BareSnapshots
from atoll.errors import NotSupportedByRuntimeError
from atoll.images.build import BuildNetwork
from atoll.images.steps import Progress
from atoll.network.filter import Mode
from atoll.wire.sandbox import ImageInfo


class BareConfig(msgspec.Struct, frozen=True):
    """Configuration of the only image."""

    env: Mapping[str, str] = {}
    workdir: str = "/workspace"
    user: str = "0:0"
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()


class BareImage(msgspec.Struct, frozen=True):
    """An image without layers."""

    reference: str
    digest: str = "sha256:" + "0" * 64
    layers: tuple[Path, ...] = ()
    config: BareConfig = BareConfig()


class BareImages:
    """Every reference is the host itself."""

    async def obtain(self, reference: str) -> BareImage:
        """Return an image of this name."""
        return BareImage(reference)

    async def hold(self, digest: str, holder: str, state_dir: Path) -> None:
        """Nothing is stored."""

    async def release(self, digest: str, holder: str) -> None:
        """Nothing is stored."""

    async def trust(self) -> None:
        """The host trusts what it trusts."""

    async def list(self) -> list[ImageInfo]:
        """Nothing is stored."""
        return []

    async def build_base(self, progress: Progress) -> BareImage:
        """There is nothing to build."""
        progress("nothing to build: sandboxes share the host's files")
        return BareImage("host")

    async def build(
        self,
        folder: Path,
        dockerfile: str,
        *,
        tag: str,
        network: BuildNetwork | None,
        progress: Progress,
    ) -> BareImage:
        """Refuse: sandboxes have no images of their own here."""
        raise NotSupportedByRuntimeError(
            f"{tag} cannot be built: the fake runtime has no images",
            context={"folder": str(folder), "dockerfile": dockerfile},
        )


class Storeless:
    """What layers are asked that are in no store of the engine's own: nothing to look after."""

    trees = None

    async def settle(self, layer_id: str, size_bytes: int) -> None:
        """Their size is nobody's here."""

    def spare(self, layer_id: str) -> AbstractContextManager[None]:
        """Their size is nobody's here."""
        return nullcontext()

    async def space(self) -> None:
        """There is no store."""

    async def trim(self) -> int:
        """There is no store."""
        return 0

    async def trim_if_worth(self) -> None:
        """There is no store."""

    async def has_failed(self) -> bool:
        """They do not fail as a whole."""
        return False

    async def is_shut(self) -> bool:
        """They do not fail as a whole."""
        return False

    async def reopen(self) -> None:
        """There is nothing to open."""


class BareLayers(Storeless):
    """Plain directories without a limit.

    Args:
        base: where they are.
    """

    def __init__(self, base: Path) -> None:
        self._base = base
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.snapshots = BareSnapshots(base)

    async def create(self, layer_id: str, size_bytes: int) -> None:
        """Make the directory; *size_bytes* is not enforced."""
        (self._base / layer_id).mkdir(exist_ok=True)

    async def exists(self, layer_id: str) -> bool:
        """Whether the directory is there."""
        return (self._base / layer_id).is_dir()

    async def attach(self, layer_id: str) -> Path:
        """Return the directory, with the two in it that a volume's files are in."""
        for name in ("upper", "work"):
            (self._base / layer_id / name).mkdir(exist_ok=True)
        return self._base / layer_id

    async def usage(self, layer_id: str) -> int:
        """Nothing is measured."""
        return 0

    async def duplicate(self, layer_id: str, copy_id: str, size_bytes: int) -> None:
        """Copy the directory."""
        copy = partial(shutil.copytree, symlinks=True, dirs_exist_ok=True)
        await asyncio.to_thread(copy, self._base / layer_id, self._base / copy_id)

    async def resize(self, layer_id: str, size_bytes: int) -> None:
        """Nothing is enforced: modes but ``direct`` are refused before."""

    async def delete(self, layer_id: str) -> None:
        """Remove the directory."""
        await asyncio.to_thread(shutil.rmtree, self._base / layer_id, ignore_errors=True)

    async def list(self) -> list[str]:
        """Return all directories."""
        return [path.name for path in self._base.iterdir()]


class BareRoots:
    """The root of a sandbox is its layer.

    Args:
        base: where the layers are.
    """

    def __init__(self, base: Path) -> None:
        self._base = base

    async def mount(
        self, host_ref: str, lowers: Sequence[Path], layer_id: str, id_base: int, id_count: int
    ) -> Path:
        """Return the directory of the layer."""
        return self._base / layer_id

    async def attach(self, host_ref: str, target: str, layer_id: str, *, read_only: bool) -> None:
        """Refuse: nothing can be mounted in the host's own root."""
        raise NotSupportedByRuntimeError(
            f"nothing can be mounted at {target}: the fake runtime shares the host's files",
            context={"path": target},
        )

    async def unmount(self, host_ref: str) -> None:
        """Nothing is mounted."""

    async def list(self) -> list[str]:
        """Nothing is mounted."""
        return []


class BareSlot(msgspec.Struct, frozen=True):
    """The host's network."""

    netns: Path | None = None
    address: str = "127.0.0.1"
    addresses: tuple[str, ...] = ("127.0.0.1",)
    nameservers: tuple[str, ...] = ()


class BareNetworks:
    """The host's network, for everybody."""

    closes = False
    by_gateway = False
    way_out = True

    async def acquire(self, host_ref: str) -> BareSlot:
        """Return the host's network."""
        return BareSlot()

    async def release(self, host_ref: str) -> None:
        """Nothing was made."""

    async def adopt(self, host_refs: Iterable[str]) -> None:
        """Nothing was made."""

    async def set_mode(self, host_ref: str, mode: Mode) -> None:
        """Nothing is enforced: modes but ``direct`` are refused before."""

    async def traffic(self, host_ref: str) -> tuple[int, int]:
        """Nothing is counted."""
        return 0, 0

    async def list(self) -> list[str]:
        """Nothing was made."""
        return []
