"""What the engine needs from its siblings, as interfaces: images, layers, roots, networks.

The engine works against these, so that its rules are tested without root, and a cluster can put
something else beneath them. All calls are idempotent; `list` tells what exists, whoever made it.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from atoll.engine.egress.direct import DirectLog
from atoll.errors import RuntimeNotAvailableError
from atoll.images.build import BuildNetwork
from atoll.images.certificates import Trust
from atoll.images.steps import Progress
from atoll.network.filter import Mode
from atoll.network.gateway.client import Handle
from atoll.network.gateway.protocol import Decision, Put, StatusReport
from atoll.network.policy import SandboxPolicy
from atoll.runtime.base import Runtime
from atoll.storage.btrfs_trees import BtrfsTrees
from atoll.storage.capacity import Space
from atoll.storage.idmap import IdRanges
from atoll.wire.sandbox import ImageInfo

Hear = Callable[[str, Decision], None]
"""Is told the key of a sandbox and what was decided for it."""

Forgotten = Callable[[str], None]
"""Is told the key of a sandbox that is destroyed."""

_OF_ROOT = ("container", "gvisor")


class ImageConfig(Protocol):
    """The part of an image's configuration that commands start with."""

    @property
    def env(self) -> Mapping[str, str]: ...
    @property
    def workdir(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def entrypoint(self) -> tuple[str, ...]: ...
    @property
    def cmd(self) -> tuple[str, ...]: ...


class Image(Protocol):
    """An unpacked image. `layers` are directories, the uppermost first."""

    @property
    def reference(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def layers(self) -> tuple[Path, ...]: ...
    @property
    def config(self) -> ImageConfig: ...


class Images(Protocol):
    """`atoll.images.store`."""

    async def obtain(self, reference: str) -> Image: ...
    async def hold(self, digest: str, holder: str, state_dir: Path) -> None: ...
    async def release(self, digest: str, holder: str) -> None: ...
    async def trust(self) -> Trust | None: ...
    async def list(self) -> list[ImageInfo]: ...
    async def build_base(self, progress: Progress) -> Image: ...
    async def build(
        self,
        folder: Path,
        dockerfile: str,
        *,
        tag: str,
        network: BuildNetwork | None,
        progress: Progress,
    ) -> Image: ...


class Snapshots(Protocol):
    """`atoll.storage.snapshots`: what layers held at one moment."""

    async def take(self, layer_id: str, snapshot_id: str) -> None: ...
    async def clone(self, snapshot_id: str, layer_id: str, size_bytes: int) -> None: ...
    async def attach(self, snapshot_id: str) -> Path: ...
    async def usage(self, snapshot_id: str) -> int: ...
    async def delete(self, snapshot_id: str) -> None: ...
    async def list(self) -> list[str]: ...


class Layers(Protocol):
    """`atoll.storage.layers`: the writable layer of each sandbox.

    `trees` is None where layers share no blocks.
    """

    @property
    def snapshots(self) -> Snapshots: ...
    @property
    def trees(self) -> BtrfsTrees | None: ...
    async def create(self, layer_id: str, size_bytes: int) -> object: ...
    async def attach(self, layer_id: str) -> Path: ...
    async def exists(self, layer_id: str) -> bool: ...
    async def delete(self, layer_id: str) -> None: ...
    async def usage(self, layer_id: str) -> int: ...
    async def duplicate(self, layer_id: str, copy_id: str, size_bytes: int) -> None: ...
    async def resize(self, layer_id: str, size_bytes: int) -> None: ...
    async def settle(self, layer_id: str, size_bytes: int) -> None: ...
    def spare(self, layer_id: str) -> AbstractContextManager[None]: ...
    async def space(self) -> Space | None: ...
    async def trim(self) -> int: ...
    async def trim_if_worth(self) -> None: ...
    async def has_failed(self) -> bool: ...
    async def is_shut(self) -> bool: ...
    async def reopen(self) -> None: ...
    async def list(self) -> list[str]: ...


class Roots(Protocol):
    """`atoll.storage.rootfs`: the mounted root of each running sandbox."""

    async def mount(
        self, host_ref: str, lowers: Sequence[Path], layer_id: str, id_base: int, id_count: int
    ) -> Path: ...
    async def attach(
        self, host_ref: str, target: str, layer_id: str, *, read_only: bool
    ) -> None: ...
    async def unmount(self, host_ref: str) -> None: ...
    async def list(self) -> list[str]: ...


class Slot(Protocol):
    """A network namespace with an address."""

    @property
    def netns(self) -> Path | None: ...
    @property
    def address(self) -> str: ...
    @property
    def addresses(self) -> tuple[str, ...]: ...
    @property
    def nameservers(self) -> tuple[str, ...]: ...


class Networks(Protocol):
    """`atoll.network.slots`. A slot that is acquired reaches nothing until its mode is set.

    Args:
        closes: whether it can be held to that; else every sandbox reaches what its host does.
        by_gateway: all that leaves is carried by the gateway, which then counts it.
        way_out: whether anything can leave at all.
    """

    closes: bool
    by_gateway: bool
    way_out: bool

    async def acquire(self, host_ref: str) -> Slot: ...
    async def release(self, host_ref: str) -> None: ...
    async def adopt(self, host_refs: Iterable[str]) -> None: ...
    async def set_mode(self, host_ref: str, mode: Mode) -> None: ...
    async def traffic(self, host_ref: str) -> tuple[int, int]: ...
    async def list(self) -> list[str]: ...


class Gateway(Protocol):
    """`atoll.engine.egress.gateway`: told of every sandbox, asks for handlers of Workers."""

    logs: Path
    direct: DirectLog
    answer: Handle
    hear: Hear
    forgotten: Forgotten

    @property
    def ready(self) -> bool: ...
    async def put(self, put: Put) -> None: ...
    async def remove(self, host_ref: str) -> None: ...
    async def settle(self) -> None: ...
    async def status(self) -> StatusReport: ...


@runtime_checkable
class Ranged(Protocol):
    """Networks that hold a sandbox to ranges of addresses themselves, without a gateway."""

    async def restrict(self, host_ref: str, wanted: SandboxPolicy) -> None: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """The components one engine works with. Runtimes are by isolation level, or another name."""

    images: Images
    layers: Layers
    roots: Roots
    networks: Networks
    ids: IdRanges
    runtimes: Mapping[str, Runtime]
    gateway: Gateway | None = None

    def drivers(self) -> list[Runtime]:
        """Return every driver once."""
        return list({id(one): one for one in self.runtimes.values()}.values())

    def runtime(self, level: str) -> Runtime:
        """Return the driver of *level*.

        Raises:
            RuntimeNotAvailableError: this host has none; asking for a level never degrades.
        """
        if runtime := self.runtimes.get(level):
            return runtime
        raise RuntimeNotAvailableError(
            f"this host has no runtime for level {level!r}",
            context={"runtime": level, "available": sorted(self.runtimes)},
            suggestion=_suggestion(level),
        )


def _suggestion(level: str) -> str:
    told = "`atoll doctor` tells what this host can do and what to install"
    if level in _OF_ROOT and os.geteuid() != 0:
        return f"an engine that runs as root has this level; {told}"
    return told
