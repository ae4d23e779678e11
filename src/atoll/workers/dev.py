"""``atoll dev``: builds images, configures namespaces, runs the Worker and reloads it on change.

A reload replaces the worker process only. Sandboxes belong to the engine and go on; the listening
socket belongs to this process, so requests made meanwhile wait. A changed Dockerfile or
configuration is applied too: new sandboxes (and sandboxes that wake) get the new image.
"""

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from watchfiles import DefaultFilter, awatch

from atoll import errors
from atoll.wire.base import Result
from atoll.wire.sandbox import CustomInstance, NamespaceConfig
from atoll.workers import wrangler

STOP_SECONDS = 5.0
"""How long a worker process may take to finish its requests when it is replaced."""

Say = Callable[[str], None]


class Ready(Result, frozen=True, kw_only=True):
    """What `serve` tells when the Worker answers requests."""

    url: str
    name: str


async def serve(
    engine: Any,
    root: Path,
    *,
    say: Say,
    ready: Callable[[Ready], None],
    environment: str | None = None,
    port: int | None = None,
) -> None:
    """Serve the project in *root* until cancelled.

    Args:
        engine: an open environment of the SDK.
        root: the project's folder.
        say: called with lines for the user.
        ready: called once, when the first worker process is started.
        environment: a key of the configuration's ``env`` table.
        port: overrides the configuration's ``dev.port``; 0 takes a free one.

    Raises:
        InvalidConfigError: the configuration is wrong at the first start; later it is only said.
        PortInUseError: somebody else listens on the port.
    """
    project = wrangler.load(root, environment)
    for warning in project.warnings:
        say(f"warning: {warning}")
    await apply(engine, project, say)
    with _listen(project.config.dev.ip, project.config.dev.port if port is None else port) as sock:
        host, bound = sock.getsockname()[:2]
        worker = Worker(root, environment, await engine.url(), sock)
        try:
            await worker.start()
            ready(Ready(url=f"http://{host}:{bound}", name=project.config.name))
            async for changed in _changes(root):
                say(f"reload: {', '.join(sorted(changed))} changed")
                await _reload(engine, root, environment, changed, worker, say)
        finally:
            await worker.stop()


async def _reload(
    engine: Any,
    root: Path,
    environment: str | None,
    changed: set[str],
    worker: "Worker",
    say: Say,
) -> None:
    try:
        if any(not name.endswith(".py") for name in changed):
            await apply(engine, wrangler.load(root, environment), say)
    except errors.SandboxError as error:
        say(f"error: {error}")
    await worker.stop()
    await worker.start()


async def apply(engine: Any, project: wrangler.Project, say: Say) -> None:
    """Build the project's images and configure its namespaces at the *engine*.

    Raises:
        InvalidConfigError: an image is neither a reference nor something that is there.
        SandboxError: the build failed.
    """
    config = project.config
    if config.containers:
        await engine.images.build_base(on_progress=say)
    for binding in config.durable_objects.bindings:
        container = config.container(binding.class_name)
        name = config.namespace(binding.class_name)
        image = await _image(engine, project, container, name, say) if container else None
        await engine.namespace(name).configure(
            NamespaceConfig(
                image=image,
                instance_type=_instance_type(container),
                max_instances=container.max_instances if container else None,
                env=container.image_vars if container else {},
            )
        )


def _instance_type(container: wrangler.Container | None) -> str | CustomInstance | None:
    wanted = container.instance_type if container else None
    if not isinstance(wanted, wrangler.Instance):
        return wanted
    return CustomInstance(vcpu=wanted.vcpu, memory_mib=wanted.memory_mib, disk_mb=wanted.disk_mb)


async def _image(
    engine: Any, project: wrangler.Project, container: wrangler.Container, name: str, say: Say
) -> str:
    """Return the reference of the container's image, built first where it is a Dockerfile."""
    path = project.root / container.image
    if not container.image.startswith((".", "/")) and not path.exists():
        return container.image
    dockerfile = path / "Dockerfile" if path.is_dir() else path
    if not dockerfile.is_file():
        raise errors.InvalidConfigError(
            f"{project.file}: the image {container.image} is not there",
            context={"file": str(project.file), "image": container.image},
            suggestion="write a Dockerfile there, or name an image",
        )
    context = (
        project.root / container.image_build_context
        if container.image_build_context
        else dockerfile.parent
    )
    tag = f"localhost/{name}:dev"
    say(f"building {tag} from {dockerfile}")
    await engine.images.build(
        context, tag=tag, dockerfile=str(dockerfile.relative_to(context)), on_progress=say
    )
    return tag


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), reuse_port=False)
    except OSError as error:
        raise errors.PortInUseError(
            f"cannot listen on {host}:{port}: {error.strerror}",
            context={"host": host, "port": port},
            suggestion="stop what listens there, or choose another port with --port",
        ) from error


async def _changes(root: Path) -> AsyncIterator[set[str]]:
    async for changes in awatch(root, watch_filter=DefaultFilter(), step=100, rust_timeout=1000):
        yield {str(Path(path).relative_to(root)) for _, path in changes}


class Worker:
    """The worker process: started, replaced, stopped. Its standard output is ours.

    Its standard input is a pipe that only this process holds: when that ends, however it ends,
    the worker ends too.
    """

    def __init__(
        self, root: Path, environment: str | None, engine_url: str, listener: socket.socket
    ) -> None:
        self._argv = [sys.executable, "-m", "atoll.workers.host"]
        self._argv += ["--project", str(root), "--engine", engine_url]
        self._argv += ["--fd", str(listener.fileno())]
        self._argv += ["--environment", environment] if environment else []
        self._listener = listener
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process; it takes the connections that wait at the socket."""
        self._process = await asyncio.create_subprocess_exec(
            *self._argv, pass_fds=(self._listener.fileno(),), stdin=asyncio.subprocess.PIPE
        )

    async def stop(self) -> None:
        """End the process; requests it has begun may finish within `STOP_SECONDS`."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
