"""One handler per operation of `wire.ops`: name → what the engine does.

A handler takes the engine, the request and the decoded body. It returns a result struct, or an
ASGI application where the answer is a stream.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import msgspec
from starlette.requests import Request

import atoll
from atoll.engine.commands import calls
from atoll.engine.engine import Engine
from atoll.engine.processes.background import signal_of
from atoll.engine.store import namespaces
from atoll.errors import SessionNotFoundError, ValidationFailedError
from atoll.server import (
    access,
    addressed,
    backups,
    builds,
    disk,
    exec,
    files,
    git,
    interpreter,
    lifecycle,
    mounts,
    network,
    objects,
    processes,
    queries,
    secrets,
    snapshots,
    volumes,
)
from atoll.server import ports as exposed
from atoll.wire import files as wire_files
from atoll.wire import ids, ops, process, sandbox
from atoll.wire.base import Done, Empty
from atoll.wire.frames import Kind
from atoll.wire.namespaces import NamespacePage, NamespaceQuery
from atoll.wire.ops import Op

Handler = Callable[[Engine, Request, Any], Coroutine[Any, Any, Any]]


async def _version(engine: Engine, request: Request, wanted: Empty) -> sandbox.Version:
    return sandbox.Version(version=atoll.__version__, api=ops.API_VERSION, engine_id=engine.id)


async def _configure(engine: Engine, request: Request, wanted: sandbox.NamespaceConfig) -> Done:
    await engine.configure_namespace(request.path_params["namespace"], wanted)
    return Done()


async def _namespaces(engine: Engine, request: Request, wanted: NamespaceQuery) -> NamespacePage:
    return await namespaces.page(engine.store, wanted)


async def _list(engine: Engine, request: Request, wanted: ops.ListSandboxes) -> sandbox.SandboxPage:
    try:
        state = sandbox.State(wanted.state) if wanted.state else None
    except ValueError as error:
        raise ValidationFailedError(
            f"{wanted.state!r} is not a state",
            context={"field": "state"},
            suggestion=f"use one of {', '.join(sandbox.State)}",
        ) from error
    return await engine.list(
        request.path_params["namespace"],
        state=state,
        labels=queries.labels(wanted.labels),
        cursor=wanted.cursor,
        limit=max(1, wanted.limit),
    )


async def _ensure(
    engine: Engine, request: Request, wanted: sandbox.SandboxOptions
) -> sandbox.SandboxInfo:
    found = addressed.sandbox(engine, request)
    return found.info(await found.configure(wanted))


async def _info(engine: Engine, request: Request, wanted: Empty) -> sandbox.SandboxInfo:
    return await engine.info(request.path_params["namespace"], request.path_params["id"])


async def _start(engine: Engine, request: Request, wanted: Empty) -> sandbox.SandboxInfo:
    async with addressed.sandbox(engine, request).use():
        return await _info(engine, request, wanted)


async def _stop(
    engine: Engine, request: Request, wanted: sandbox.StopRequest
) -> sandbox.SandboxInfo:
    await addressed.sandbox(engine, request).stop(signal=signal_of(wanted.signal).name)
    return await _info(engine, request, Empty())


async def _destroy(engine: Engine, request: Request, wanted: Empty) -> Done:
    await addressed.sandbox(engine, request).destroy()
    return Done()


async def _exec(engine: Engine, request: Request, wanted: None) -> Any:
    return await exec.run(engine, request)


async def _attach(engine: Engine, request: Request, wanted: None) -> Any:
    return await exec.attach(engine, request)


async def _cancel(engine: Engine, request: Request, wanted: Empty) -> Done:
    return await _control(engine, request, Kind.CANCEL)


async def _signal(engine: Engine, request: Request, wanted: process.SignalRequest) -> Done:
    payload = {"signal": signal_of(wanted.signal).name, "tree": wanted.tree}
    return await _control(engine, request, Kind.SIGNAL, msgspec.json.encode(payload))


async def _resize(engine: Engine, request: Request, wanted: process.ResizeRequest) -> Done:
    payload = {"cols": wanted.cols, "rows": wanted.rows}
    return await _control(engine, request, Kind.RESIZE, msgspec.json.encode(payload))


async def _control(engine: Engine, request: Request, kind: Kind, payload: bytes = b"") -> Done:
    operation = ids.check_operation_id(request.path_params["operation"])
    await calls.control(addressed.sandbox(engine, request), operation, kind, payload)
    return Done()


async def _stdin(engine: Engine, request: Request, wanted: None) -> Done:
    await exec.feed(engine, request)
    return Done()


async def _read_file(engine: Engine, request: Request, wanted: None) -> Any:
    return await files.read(engine, request)


async def _download(engine: Engine, request: Request, wanted: None) -> Any:
    return await files.download(engine, request)


async def _watch(engine: Engine, request: Request, wanted: wire_files.WatchRequest) -> Any:
    return await files.watch(engine, request, wanted)


def _store(op: Op[Any, Any]) -> Handler:
    async def handler(engine: Engine, request: Request, wanted: None) -> Any:
        return await files.store(engine, op, request)

    return handler


def _file(op: Op[Any, Any]) -> Handler:
    async def handler(engine: Engine, request: Request, wanted: Any) -> Any:
        return await files.unary(engine, op, request, wanted)

    return handler


async def _create_session(
    engine: Engine, request: Request, wanted: process.CreateSessionRequest
) -> process.SessionInfo:
    return await calls.create_session(addressed.sandbox(engine, request), wanted)


async def _list_sessions(engine: Engine, request: Request, wanted: Empty) -> process.SessionList:
    return await calls.list_sessions(addressed.sandbox(engine, request))


async def _get_session(engine: Engine, request: Request, wanted: Empty) -> process.SessionInfo:
    id, found = request.path_params["session"], await _list_sessions(engine, request, wanted)
    for session in found.sessions:
        if session.id == id:
            return session
    raise SessionNotFoundError(f"no session {id!r}", context={"session": id})


async def _delete_session(engine: Engine, request: Request, wanted: Empty) -> Done:
    await calls.delete_session(addressed.sandbox(engine, request), request.path_params["session"])
    return Done()


async def _set_env(engine: Engine, request: Request, wanted: process.EnvRequest) -> Done:
    await calls.set_env(addressed.sandbox(engine, request), wanted)
    return Done()


async def _build_image(engine: Engine, request: Request, wanted: None) -> Any:
    return await builds.image(engine, request)


async def _build_base(engine: Engine, request: Request, wanted: Empty) -> Any:
    return builds.base(engine, request)


async def _list_images(engine: Engine, request: Request, wanted: Empty) -> sandbox.ImageList:
    return sandbox.ImageList(images=await engine.images.list())


HANDLERS: Mapping[Op[Any, Any], Handler] = {
    ops.VERSION: _version,
    ops.CONFIGURE_NAMESPACE: _configure,
    ops.LIST_NAMESPACES: _namespaces,
    ops.LIST_SANDBOXES: _list,
    ops.ENSURE: _ensure,
    ops.INFO: _info,
    ops.DESTROY: _destroy,
    ops.START: _start,
    ops.STOP: _stop,
    ops.SLEEP: lifecycle.sleep,
    ops.RENEW: lifecycle.renew,
    ops.METRICS: lifecycle.metrics,
    ops.EVENTS: lifecycle.events,
    ops.CHANGE_NETWORK: network.change,
    ops.GET_NETWORK: network.policy,
    ops.NETWORK_LOG: network.log,
    ops.EXEC: _exec,
    ops.ATTACH: _attach,
    ops.CANCEL: _cancel,
    ops.SIGNAL: _signal,
    ops.RESIZE: _resize,
    ops.STDIN: _stdin,
    ops.READ_FILE: _read_file,
    ops.WRITE_FILE: _store(ops.WRITE_FILE),
    ops.DOWNLOAD: _download,
    ops.WATCH: _watch,
    ops.UPLOAD: _store(ops.UPLOAD),
    **{
        op: _file(op)
        for op in (
            ops.DELETE_FILE,
            ops.MKDIR,
            ops.RENAME,
            ops.MOVE,
            ops.COPY,
            ops.EXISTS,
            ops.STAT,
            ops.LIST_FILES,
            ops.SET_PERMISSIONS,
            ops.SEARCH_FILES,
            ops.FIND_IN_FILES,
            ops.REPLACE_IN_FILES,
            ops.CHECK_CHANGES,
        )
    },
    ops.GIT_CHECKOUT: git.checkout,
    ops.CREATE_SESSION: _create_session,
    ops.LIST_SESSIONS: _list_sessions,
    ops.GET_SESSION: _get_session,
    ops.DELETE_SESSION: _delete_session,
    ops.SET_ENV: _set_env,
    ops.START_PROCESS: processes.start,
    ops.LIST_PROCESSES: processes.listing,
    ops.KILL_ALL_PROCESSES: processes.kill_all,
    ops.CLEANUP_PROCESSES: processes.clean,
    ops.GET_PROCESS: processes.get,
    ops.KILL_PROCESS: processes.kill,
    ops.PROCESS_LOGS: processes.logs,
    ops.STREAM_PROCESS_LOGS: processes.stream,
    ops.WAIT_FOR_PORT: processes.wait_for_port,
    ops.CALL: objects.call,
    ops.ADD_SCHEDULE: objects.schedule,
    ops.LIST_SCHEDULES: objects.schedules,
    ops.CANCEL_SCHEDULE: objects.cancel_schedule,
    ops.SET_ALARM: objects.set_alarm,
    ops.GET_ALARM: objects.get_alarm,
    ops.DELETE_ALARM: objects.delete_alarm,
    ops.CONFIGURE_PROJECT: objects.configure,
    ops.ATTACH_WORKER: objects.attach,
    ops.ANSWER_CALL: objects.answer,
    ops.EXPOSE_PORT: exposed.expose,
    ops.LIST_PORTS: exposed.listing,
    ops.WAIT_FOR_PORTS: exposed.wait,
    ops.CHECK_PORT: exposed.check,
    ops.UNEXPOSE_PORT: exposed.unexpose,
    ops.PREVIEW_LINK: exposed.link,
    ops.PREVIEW_LOG: exposed.log,
    ops.OPEN_TUNNEL: exposed.open_tunnel,
    ops.DESTROY_TUNNEL: exposed.destroy_tunnel,
    ops.LIST_TUNNELS: exposed.tunnels,
    ops.CONNECT_PORT: exposed.connect,
    ops.CONNECT_PREVIEWS: exposed.previews,
    ops.TAKE_SNAPSHOT: snapshots.take,
    ops.FORK: snapshots.fork,
    ops.RESTORE: snapshots.restore,
    ops.DIFF: snapshots.diff,
    ops.PATCH: snapshots.patch,
    ops.LIST_SNAPSHOTS: snapshots.listing,
    ops.GET_SNAPSHOT: snapshots.get,
    ops.EXPORT_SNAPSHOT: snapshots.export,
    ops.IMPORT_SNAPSHOT: snapshots.receive,
    ops.DELETE_SNAPSHOT: snapshots.delete,
    ops.CREATE_CONTEXT: interpreter.create,
    ops.LIST_CONTEXTS: interpreter.listing,
    ops.DELETE_CONTEXT: interpreter.delete,
    ops.INTERRUPT_CONTEXT: interpreter.interrupt,
    ops.CONTEXT_VARIABLES: interpreter.variables,
    ops.RUN_CODE: interpreter.run,
    ops.MOUNT_BUCKET: mounts.mount,
    ops.UNMOUNT_BUCKET: mounts.unmount,
    ops.LIST_MOUNTS: mounts.listing,
    ops.CREATE_BACKUP: backups.create,
    ops.RESTORE_BACKUP: backups.restore,
    ops.LIST_BACKUPS: backups.listing,
    ops.GET_BACKUP: backups.get,
    ops.DELETE_BACKUP: backups.delete,
    ops.DISK: disk.usage,
    ops.COLLECT: disk.collect,
    ops.CREATE_VOLUME: volumes.create,
    ops.LIST_VOLUMES: volumes.listing,
    ops.GET_VOLUME: volumes.get,
    ops.DELETE_VOLUME: volumes.delete,
    ops.RESIZE_VOLUME: volumes.resize,
    ops.PUBLISH_VOLUME: volumes.publish,
    ops.READ_VOLUME: volumes.read,
    ops.WRITE_VOLUME: volumes.write,
    ops.LIST_VOLUME: volumes.files,
    ops.MAKE_VOLUME_FOLDER: volumes.make_folder,
    ops.MOVE_IN_VOLUME: volumes.move,
    ops.REMOVE_IN_VOLUME: volumes.remove,
    ops.BUILD_IMAGE: _build_image,
    ops.BUILD_BASE: _build_base,
    ops.LIST_IMAGES: _list_images,
    ops.POOL_STATS: lifecycle.pool_stats,
    ops.PRIME_POOL: lifecycle.prime_pool,
    ops.SHUTDOWN_POOL: lifecycle.shutdown_pool,
    ops.CREATE_KEY: access.create_key,
    ops.LIST_KEYS: access.list_keys,
    ops.REVOKE_KEY: access.revoke_key,
    ops.PUT_SECRET: secrets.put,
    ops.LIST_SECRETS: secrets.listing,
    ops.DELETE_SECRET: secrets.delete,
    ops.LIST_AUDIT: access.audit,
}

BODILESS = frozenset({ops.EXEC, ops.ATTACH, ops.STDIN, ops.READ_FILE, ops.WRITE_FILE, ops.DOWNLOAD,
                      ops.UPLOAD, ops.BUILD_IMAGE, ops.READ_VOLUME, ops.WRITE_VOLUME,
                      ops.EXPORT_SNAPSHOT, ops.IMPORT_SNAPSHOT, ops.PATCH})  # fmt: skip
"""Operations whose handlers read query and body themselves, piece by piece."""

KNOWN_INSIDE = frozenset({ops.GIT_CHECKOUT, ops.BUILD_IMAGE})
"""Operations whose answer is not kept under their idempotency key. A clone runs as a command of
that id, which ends when its caller leaves. A build tells its progress; one of the same files is
found done."""
