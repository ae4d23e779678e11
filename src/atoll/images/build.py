"""Building Dockerfiles with buildah, in a storage of our own.

Every outside image a Dockerfile names is in that storage before the build begins, so a build
never pulls and its failure is always the Dockerfile's. `RUN` steps use an OCI runtime where that
works (found by running one), else a plain chroot. They have the host's network unless another is
given; what that means is in docs/design/002-image-builds.md.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from atoll.errors import (
    ImageBuildFailedError,
    ImageNotFoundError,
    InternalError,
)
from atoll.errors import TimeoutError as BuildTimeoutError
from atoll.host import process
from atoll.images import base, dockerfile, groups, reference
from atoll.images.certificates import TARGET, Trust
from atoll.images.layout import Places, Record
from atoll.images.oci import blob_path, write_layout
from atoll.images.pull import pull
from atoll.images.reach import Reach
from atoll.images.steps import Progress, StepFailedError, run_step
from atoll.settings import ImageSettings

_CHROOT = "--isolation=chroot"
_UNCONSUMED = "[Warning] one or more build args were not consumed"
_STORAGE_CONF = """\
[storage]
driver = "overlay"
graphroot = "{root}"
runroot = "{run}"
"""

BaseImage = Callable[[], Awaitable[tuple[Record, Path]]]
"""Gives the base image's record and its layer."""


_BIND_RESOLV_CONF = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'


class BuildNetwork(NamedTuple):
    """A network namespace for a build instead of the host's own, and its resolvers.

    The builder itself runs in it: a plain chroot has no network of its own, and what `ADD` names is
    fetched by the builder.
    """

    netns: Path
    nameservers: tuple[str, ...]

    def entering(self, folder: Path) -> list[str | Path]:
        """Return what goes before a command that is to run in it; *folder* is for a file."""
        resolv_conf = folder / "resolv.conf"
        resolv_conf.write_text("".join(f"nameserver {s}\n" for s in self.nameservers))
        bind = ("sh", "-c", _BIND_RESOLV_CONF, resolv_conf)
        return ["nsenter", f"--net={self.netns}", "--", *bind]


class Builder:
    """One host's builder. The caller holds the store's lock."""

    def __init__(
        self, places: Places, settings: ImageSettings, trust: Trust | None, base_image: BaseImage
    ) -> None:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        self._places = places
        self._settings = settings
        self._trust = trust
        self._base_image = base_image
        self._reach = Reach(places.unreachable)
        self._root = places.build / "storage"
        # What buildah writes down about mounts is wrong after a reboot.
        self._run = places.build / f"run-{boot}"
        self._isolation_file = places.build / f"isolation-{boot}"
        self._storage_conf = places.build / "storage.conf"

    async def build(
        self,
        context: Path,
        text: str,
        tag: reference.Reference,
        layout: Path,
        progress: Progress,
        *,
        build_args: Mapping[str, str],
        network: BuildNetwork | None,
    ) -> None:
        """Build *text* in *context* and write the image to the OCI layout *layout*.

        Raises:
            ImageBuildFailedError: a step failed; `context.log` has the end of its output.
            ImageNotFoundError: an image it is built from does not exist.
            ImagePullFailedError: an image it is built from could not be had.
            InvalidImageError: the Dockerfile is malformed.
            RuntimeNotAvailableError: buildah or skopeo is missing.
            TimeoutError: it took longer than `build_timeout`.
        """
        self._prepare()
        await self._buildah("rm", "--all")
        sources = {
            image: await self._source(image, progress)
            for image in dockerfile.images(text, build_args)
        }
        trust = self._trust.env if self._trust else {}
        rewritten = dockerfile.rewrite(
            text, sources.__getitem__, build_args=build_args, arguments=tuple(trust)
        )
        path = layout.with_name("Dockerfile")
        path.write_text(rewritten)
        name = storage_name(tag)
        options = [
            *([f"--volume={self._trust.directory}:{TARGET}:ro"] if self._trust else []),
            *(f"--build-arg={key}={value}" for key, value in (dict(build_args) | trust).items()),
            f"--tag={name}",
            f"--file={path}",
        ]
        enter = network.entering(layout.parent) if network else []
        await self._run_build(enter, [*options, str(context)], progress)
        await self._export(name, layout, progress)

    async def _run_build(
        self, enter: list[str | Path], options: list[str], progress: Progress
    ) -> None:
        argv: list[str | Path] = [
            *enter, *self._argv("bud"), "--network=host", *await self._isolation(), "--pull=false", "--layers",
            "--force-rm", "--format=oci", f"--cgroup-parent=/{groups.PARENT}",
            f"--memory={self._settings.build_memory_mib}m", *options,
        ]  # fmt: skip
        # A caller's steps get neither the host's proxies, which they could not reach, nor what they
        # tell.
        env = self._own_env() if enter else self._env()
        watch = _Watch(progress)
        await asyncio.to_thread(groups.prepare)
        timeout = self._settings.build_timeout
        try:
            await run_step(argv, watch.line, timeout=timeout, env=env)
        except StepFailedError as failed:
            raise ImageBuildFailedError(
                f"the build failed at {watch.step}",
                context={"step": watch.step, "exit_code": failed.code, "log": failed.tail},
                suggestion="the log's last lines say why; the steps before it are cached",
            ) from failed
        except TimeoutError as late:
            raise BuildTimeoutError(
                f"the build took over {timeout:.0f} s and was ended at {watch.step}",
                suggestion="raise images.build_timeout",
            ) from late
        finally:
            await asyncio.to_thread(groups.clear)

    async def _source(self, image: str, progress: Progress) -> str:
        """Return the name in the storage of what serves *image*, which is there then."""
        *first, last = reference.candidates(image, self._settings.image_aliases)
        for candidate in first:
            name = await self._try(reference.parse(candidate), last, progress)
            if name:
                return name
        wanted = reference.parse(last)
        if wanted.name == reference.BASE:
            return await self._base(progress)
        return await self._fetch(wanted, progress)

    async def _try(
        self, wanted: reference.Reference, instead: str, progress: Progress
    ) -> str | None:
        stored = await self._has(storage_name(wanted))
        if stored or await self._reach.offers(wanted, self._env()):
            return await self._fetch(wanted, progress)
        progress(f"{wanted} cannot be had from here: using {instead}")
        return None

    async def _fetch(self, wanted: reference.Reference, progress: Progress) -> str:
        name = storage_name(wanted)
        if not await self._has(name):
            progress(f"pulling {wanted}")
            timeout = self._settings.build_timeout
            place = self._storage(name)
            await pull(wanted, place, progress, env=self._env(), timeout=timeout)
        return name

    async def _base(self, progress: Progress) -> str:
        """Return the name of the base image in the storage, brought there once."""
        record, layer = await self._base_image()
        name = _base_name(record)
        if not await self._has(name):
            progress("handing the base image to the builder (once, about 15 s)")
            await self._import(record, layer, name, progress)
        return name

    async def _import(self, record: Record, layer: Path, name: str, progress: Progress) -> None:
        with self._places.scratch() as scratch:
            layout = scratch / "layout"
            blob = blob_path(layout, record.layers[0])
            blob.parent.mkdir(parents=True)
            diff_id, size = await base.archive(layer, blob)
            if diff_id != record.layers[0]:
                raise InternalError(
                    f"the base image in {layer} was changed on disk",
                    suggestion="make it again: atoll image build-base --refresh",
                )
            write_layout(layout, "base", record.document, (diff_id, size))
            await self._skopeo(f"oci:{layout}:base", self._storage(name), progress)

    async def _isolation(self) -> list[str]:
        """Return the options for how steps are run, found out by running one, once a boot."""
        if self._isolation_file.exists():
            return self._isolation_file.read_text().split()
        image = await self._probe_image()
        for runtime in ("runc", "crun"):
            options = ["--isolation=oci", f"--runtime={runtime}"]
            if image and await self._runs(image, options):
                self._isolation_file.write_text(" ".join(options))
                return options
        if image:
            self._isolation_file.write_text(_CHROOT)
        return [_CHROOT]

    async def _probe_image(self) -> str | None:
        try:
            name = _base_name((await self._base_image())[0])
        except ImageNotFoundError:
            return None
        return name if await self._has(name) else None

    async def _runs(self, image: str, options: list[str]) -> bool:
        made = await self._buildah("from", "--pull=false", image)
        container = made.stdout.decode().strip()
        if made.code:
            return False
        done = await self._buildah("run", *options, "--network=host", container, "--", "/bin/true")
        await self._buildah("rm", container)
        return done.code == 0

    async def _export(self, name: str, layout: Path, progress: Progress) -> None:
        argv = self._argv("push", "--quiet", "--disable-compression", name, f"oci:{layout}:image")
        await run_step(argv, progress, timeout=self._settings.build_timeout, env=self._env())

    async def _has(self, name: str) -> bool:
        done = await self._buildah("inspect", "--type=image", "--format={{.FromImageID}}", name)
        return done.code == 0

    async def _skopeo(self, source: str, destination: str, progress: Progress) -> None:
        argv = ["skopeo", "copy", "--quiet", source, destination]
        await run_step(argv, progress, timeout=self._settings.build_timeout, env=self._env())

    async def _buildah(self, *arguments: str) -> process.Completed:
        return await process.run(self._argv(*arguments), env=self._env(), timeout=120.0)

    def _argv(self, *arguments: str) -> list[str | Path]:
        return [
            "buildah", "--root", self._root, "--runroot", self._run,
            "--storage-driver=overlay", *arguments,
        ]  # fmt: skip

    def _storage(self, name: str) -> str:
        return f"containers-storage:[overlay@{self._root}+{self._run}]{name}"

    def _env(self) -> dict[str, str]:
        return dict(self._settings.build_env) | self._own_env()

    def _own_env(self) -> dict[str, str]:
        """Shut out the host's own container configuration, but for its registries."""
        return {
            "CONTAINERS_STORAGE_CONF": str(self._storage_conf),
            "CONTAINERS_CONF": "/dev/null",
            "TMPDIR": str(self._places.root / "tmp"),
        }

    def _prepare(self) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        self._storage_conf.write_text(_STORAGE_CONF.format(root=self._root, run=self._run))


class _Watch:
    """Passes lines on and remembers the last step that began."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.step = "its start"

    def line(self, text: str) -> None:
        if text.startswith("STEP "):
            self.step = text
        # buildah counts only the first name of an ARG line, so ours are always reported.
        if not text.startswith(_UNCONSUMED):
            self._progress(text)


def _base_name(record: Record) -> str:
    return f"localhost/{reference.BASE}:{record.digest[:16]}"


def storage_name(wanted: reference.Reference) -> str:
    """Return an image's name in the storage; names of our own must not look like a registry's."""
    return f"localhost/{wanted}" if wanted.is_local else str(wanted)
