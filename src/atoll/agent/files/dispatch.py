"""File operations (``fs.*``): which module does what, and how one call begins and ends.

Each operation runs in a process of its own, forked by the router with the user's ids and
capabilities, as the only user of its connection. It may block on whatever the user's file system
does. No shell is involved, and no name service: see `users`.

A header holds the request's fields in snake case, ``op``, and ``cwd``, where relative paths
start. Answers are JSON in camel case. Frames, caller → agent ⇢ agent → caller:

====================  ======================================================================
``fs.read_file``      ⇢ REPLY `FileMeta` DATA* END; an ERROR in place of END: what came is not all
``fs.write_file``     DATA* END ⇢ REPLY `WriteResult`
``fs.download``       ⇢ REPLY `Archive` DATA* (a tar archive) END
``fs.upload``         DATA* (a tar archive) END ⇢ REPLY `UploadResult`
``fs.backup``         as ``fs.download``
``fs.restore``        as ``fs.upload``
``fs.place``          ⇢ REPLY `Place` DATA* (JSON: how many names there are now) END ⇢ REPLY
``fs.watch``          ⇢ (EVENT | HEARTBEAT)* END; CANCEL stops it
all others            ⇢ REPLY
====================  ======================================================================

The end of the connection, or CANCEL, interrupts any of them; so does SIGTERM, with which the
router ends what is left when the sandbox stops. Unfinished changes are undone then.

Modules are imported when they are needed: most calls need two or three of them.
"""

import importlib
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from atoll import errors
from atoll.agent.files.requests import Fields
from atoll.agent.files.streams import Interrupted, Stream, Terminated
from atoll.wire.frames import Kind

OPERATIONS: Final = {
    "read_file": "reading",
    "write_file": "writing",
    "delete_file": "deleting",
    "mkdir": "changes",
    "rename_file": "moving",
    "move_file": "moving",
    "copy_file": "copying",
    "exists": "changes",
    "stat": "changes",
    "set_permissions": "changes",
    "list_files": "listing",
    "search_files": "searching",
    "find_in_files": "finding",
    "replace_in_files": "replacing",
    "download": "packing",
    "upload": "unpacking",
    "backup": "backups",
    "restore": "backups",
    "place": "backups",
    "watch": "watching",
    "check_changes": "versions",
}
"""Operation → module beside this one that has a function of the operation's name."""


RUN_PROGRAMS: Final = frozenset({"fs.find_in_files"})
"""Operations that may run a program of the image."""


def serve(connection: socket.socket, header: Mapping[str, Any], procs: Sequence[int] = ()) -> None:
    """Do one operation and close its connection.

    Args:
        connection: blocking or not; used by nobody else.
        header: the payload of the HEADER frame, with ``cwd`` filled in.
        procs: cgroup.procs files of the commands' cgroup, if the operation is of `RUN_PROGRAMS`.
    """
    has_body = header.get("op") in {"fs.write_file", "fs.upload", "fs.restore", "fs.place"}
    stream = Stream(connection, has_body=has_body, procs=procs)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # see `streams.STUCK`: no handler could run
    try:
        _run(stream, header)
    except Interrupted as reason:
        with suppress(Interrupted):
            error = errors.OperationInterruptedError(str(reason))
            stream.send_json(Kind.ERROR, error.to_wire())
    finally:
        stream.close()


def _interrupt(*_: object) -> None:
    raise Terminated("the sandbox stops")


def _run(stream: Stream, header: Mapping[str, Any]) -> None:
    try:
        name = str(header.get("op", "")).removeprefix("fs.")
        module = OPERATIONS.get(name)
        if module is None:
            raise errors.ValidationFailedError(
                f"no file operation {name!r}", context={"field": "op", "op": name}
            )
        operation = getattr(importlib.import_module(f"atoll.agent.files.{module}"), name)
        reply = operation(stream, Fields(header))
        if reply is not None:
            stream.send_json(Kind.REPLY, reply)
    except Interrupted:
        raise
    except Exception as error:
        stream.send_json(Kind.ERROR, _typed(error, header).to_wire())


def _typed(error: Exception, header: Mapping[str, Any]) -> errors.SandboxError:
    if isinstance(error, errors.SandboxError):
        return error
    if isinstance(error, OSError):
        return errors.from_os_error(error, str(header.get("path", "")))
    sys.excepthook(type(error), error, error.__traceback__)
    return errors.InternalError(f"{type(error).__name__} in {header.get('op')}")
