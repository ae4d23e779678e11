"""``atoll dev``: builds images, configures namespaces, runs the Worker and reloads it on change.

A reload replaces the worker process only. Sandboxes belong to the engine and go on; the listening
socket belongs to this process, so requests made meanwhile wait. A changed Dockerfile or
configuration is applied too: new sandboxes (and sandboxes that wake) get the new image.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from watchfiles import DefaultFilter, awatch

from atoll import errors
from atoll.wire.base import Result
from atoll.wire.objects import Migration, ProjectConfig, RenamedClass
from atoll.wire.sandbox import CustomInstance, NamespaceConfig
from atoll.workers import keeper, wrangler
from atoll.workers.buckets import places
from atoll.workers.supervisor import Worker
from atoll.workers.watched import Watched

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
    with _listen(project.config.dev.ip, project.config.dev.port if port is None else port) as sock:
        await _offer(engine, project)
        namespaces = await apply(engine, project, say)
        host, bound = sock.getsockname()[:2]
        worker = Worker(root, environment, await engine.url(), sock, say, namespaces)
        keeping = asyncio.create_task(keeper.keep(engine, say))
        try:
            await worker.start()
            ready(Ready(url=f"http://{host}:{bound}", name=project.config.name))
            await _follow(engine, project, environment, worker, say)
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])
            await worker.stop()


async def _follow(
    engine: Any, project: wrangler.Project, environment: str | None, worker: Worker, say: Say
) -> None:
    """Replace the worker for every change, until cancelled."""
    root, watched = project.root, _watched(project)
    async for touched in _changes(root):
        changed = {path for path in touched if watched.matters(path)}
        if not changed:
            continue
        say(f"reload: {', '.join(sorted(str(path.relative_to(root)) for path in changed))} changed")
        try:
            if any(path.suffix != ".py" or watched.in_image(path) for path in changed):
                project = wrangler.load(root, environment)
                watched = _watched(project)
                await _offer(engine, project)
                worker.namespaces = await apply(engine, project, say)
        except errors.SandboxError as error:
            say(f"error: {error}")
        await worker.stop()
        await worker.start()


async def _offer(engine: Any, project: wrangler.Project) -> None:
    """Have sandboxes of a private engine mount the folders that are the project's buckets."""
    if project.config.r2_buckets:
        with suppress(errors.NotSupportedByRuntimeError):
            await engine.offer_buckets(places.folders(project.config.r2_buckets, project.root))


def _watched(project: wrangler.Project) -> Watched:
    images = [_dockerfile(project, container) for container in project.config.containers]
    contexts = [found[1] for found in images if found]
    return Watched(project.root, project.entry.parent, contexts)


async def apply(engine: Any, project: wrangler.Project, say: Say) -> dict[str, str]:
    """Apply migrations, build the project's images, configure its namespaces at the *engine*.

    Returns:
        The namespace of each class.

    Raises:
        InvalidConfigError: a migration cannot be applied, or an image is neither a reference nor
            something that is there.
        SandboxError: the build failed.
    """
    config = project.config
    bindings = config.durable_objects.bindings
    known = await engine.configure_project(
        config.name,
        ProjectConfig(
            classes={one.class_name: config.namespace(one.class_name) for one in bindings},
            migrations=[_migration(one) for one in config.migrations],
        ),
    )
    if config.containers:
        await engine.images.build_base(on_progress=say)
    for binding in bindings:
        container = config.container(binding.class_name)
        name = known.namespaces[binding.class_name]
        image = await _image(engine, project, container, name, say) if container else None
        await engine.namespace(name).configure(
            NamespaceConfig(
                image=image,
                instance_type=_instance_type(container),
                max_instances=container.max_instances if container else None,
                env=container.image_vars if container else {},
            )
        )
    namespaces: dict[str, str] = known.namespaces
    return namespaces


def _migration(step: wrangler.Migration) -> Migration:
    return Migration(
        tag=step.tag,
        new_sqlite_classes=step.new_sqlite_classes,
        renamed_classes=[RenamedClass(from_=one.from_, to=one.to) for one in step.renamed_classes],
        deleted_classes=step.deleted_classes,
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
    found = _dockerfile(project, container)
    if found is None:
        return container.image
    dockerfile, context = found
    if not dockerfile.is_file() or context not in dockerfile.parents:
        what = "not in its build context" if dockerfile.is_file() else "not there"
        raise errors.InvalidConfigError(
            f"{project.file}: the image {container.image} is {what}",
            context={"file": str(project.file), "image": container.image},
            suggestion="write a Dockerfile there, or name an image",
        )
    tag = f"localhost/{name}:dev"
    say(f"building {tag} from {dockerfile}")
    await engine.images.build(
        context, tag=tag, dockerfile=str(dockerfile.relative_to(context)), on_progress=say
    )
    return tag


def _dockerfile(
    project: wrangler.Project, container: wrangler.Container
) -> tuple[Path, Path] | None:
    """Return the Dockerfile and its build context; None: the image is a reference."""
    path = project.root / container.image
    if not container.image.startswith((".", "/")) and not path.exists():
        return None
    dockerfile = path / "Dockerfile" if path.is_dir() else path
    given = container.image_build_context
    context = project.root / given if given else dockerfile.parent
    return dockerfile.resolve(), context.resolve()


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), reuse_port=False)
    except OSError as error:
        raise errors.PortInUseError(
            f"cannot listen on {host}:{port}: {error.strerror}",
            context={"host": host, "port": port},
            suggestion="stop what listens there, or choose another port with --port",
        ) from error


async def _changes(root: Path) -> AsyncIterator[set[Path]]:
    async for changes in awatch(root, watch_filter=DefaultFilter(), step=100, rust_timeout=1000):
        yield {Path(path) for _, path in changes}
