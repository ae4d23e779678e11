"""Named, durable sandboxes for untrusted code, on machines you own.

    import atoll

    async with atoll.local() as env:
        sandbox = atoll.get_sandbox(env.Sandbox, "my-sandbox")
        result = await sandbox.exec("echo hello")

`atoll.sync` has the same names for blocking code. Names are loaded when they are first used
(PEP 562): importing the package costs next to nothing and pulls in no server dependency.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atoll import errors, sync
    from atoll.errors import *  # noqa: F403
    from atoll.errors import CommandFailedError, EngineUnreachableError, SandboxError
    from atoll.sdk._async.background import Process
    from atoll.sdk._async.environment import (
        Environment,
        Namespace,
        connect,
        get_sandbox,
    )
    from atoll.sdk._async.events import EventStream
    from atoll.sdk._async.filestream import FileStream
    from atoll.sdk._async.interpreter import CodeContext, CodeStream
    from atoll.sdk._async.local import local
    from atoll.sdk._async.logs import LogStream
    from atoll.sdk._async.network import NetworkLog
    from atoll.sdk._async.process import ProcessHandle
    from atoll.sdk._async.sandbox import Sandbox
    from atoll.sdk._async.service import ServiceResponse
    from atoll.sdk._async.session import Session
    from atoll.sdk._async.snapshots import Diff, Forks
    from atoll.sdk._async.streams import ExecStream, parse_sse_stream
    from atoll.sdk._async.volumes import Volume
    from atoll.sdk._async.watch import WatchStream
    from atoll.sdk._async.websocket import WebSocket
    from atoll.sdk._logs import LogMatch
    from atoll.sdk._results import ContainerTimeouts, ReadFileResult, State
    from atoll.sdk._secret import secret
    from atoll.wire.backups import BackupPage, DirectoryBackup
    from atoll.wire.disk import Collected, DiskUsage
    from atoll.wire.egress import NetworkEvent, NetworkPolicy
    from atoll.wire.files import Changes, FileInfo, FileList, FileMeta, WatchEvent, WriteResult
    from atoll.wire.git import GitCheckout
    from atoll.wire.interpreter import (
        Chart,
        CodeResult,
        ExecutionComplete,
        ExecutionError,
        ExecutionLogs,
        ExecutionResult,
        LateOutput,
        Variable,
    )
    from atoll.wire.ports import ExposedPort, PreviewLink, Visit
    from atoll.wire.process import (
        ExecEvent,
        ExecResult,
        Exited,
        Failed,
        Gap,
        ProcessInfo,
        ProcessLogs,
        SessionInfo,
        Started,
        Stderr,
        Stdout,
    )
    from atoll.wire.sandbox import (
        CustomInstance,
        Metrics,
        SandboxEvent,
        SandboxInfo,
        SandboxPage,
        Version,
    )
    from atoll.wire.snapshots import Snapshot, SnapshotPage
    from atoll.wire.volumes import VolumeFile, VolumeFileList, VolumeInfo, VolumePage
    from atoll.workers.preview import proxy_to_sandbox

__version__ = "0.1.0"

_MODULES = {
    "atoll.errors": "CommandFailedError EngineUnreachableError SandboxError",
    "atoll.sdk._async.environment": "Environment Namespace connect get_sandbox",
    "atoll.sdk._async.events": "EventStream",
    "atoll.sdk._async.filestream": "FileStream",
    "atoll.sdk._async.interpreter": "CodeContext CodeStream",
    "atoll.sdk._async.local": "local",
    "atoll.sdk._async.background": "Process",
    "atoll.sdk._async.logs": "LogStream",
    "atoll.sdk._async.network": "NetworkLog",
    "atoll.sdk._async.process": "ProcessHandle",
    "atoll.sdk._logs": "LogMatch",
    "atoll.sdk._async.sandbox": "Sandbox",
    "atoll.sdk._secret": "secret",
    "atoll.sdk._async.session": "Session",
    "atoll.sdk._async.snapshots": "Diff Forks",
    "atoll.sdk._async.streams": "ExecStream parse_sse_stream",
    "atoll.sdk._async.volumes": "Volume",
    "atoll.sdk._async.watch": "WatchStream",
    "atoll.sdk._results": "ContainerTimeouts ReadFileResult State",
    "atoll.wire.files": "Changes FileInfo FileList FileMeta WatchEvent WriteResult",
    "atoll.wire.git": "GitCheckout",
    "atoll.wire.egress": "NetworkEvent NetworkPolicy",
    "atoll.wire.ports": "ExposedPort PreviewLink Visit",
    "atoll.sdk._async.service": "ServiceResponse",
    "atoll.sdk._async.websocket": "WebSocket",
    "atoll.wire.interpreter": (
        "Chart CodeResult ExecutionComplete ExecutionError ExecutionLogs ExecutionResult "
        "LateOutput Variable"
    ),
    "atoll.wire.process": (
        "ExecEvent ExecResult Exited Failed Gap ProcessInfo ProcessLogs SessionInfo Started "
        "Stderr Stdout"
    ),
    "atoll.wire.sandbox": "CustomInstance Metrics SandboxEvent SandboxInfo SandboxPage Version",
    "atoll.wire.backups": "BackupPage DirectoryBackup",
    "atoll.wire.disk": "Collected DiskUsage",
    "atoll.wire.snapshots": "Snapshot SnapshotPage",
    "atoll.wire.volumes": "VolumeFile VolumeFileList VolumeInfo VolumePage",
    "atoll.workers.preview": "proxy_to_sandbox",
}
_SUBMODULES = {"errors", "sync"}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "BackupPage",
    "Changes",
    "Chart",
    "CodeContext",
    "CodeResult",
    "CodeStream",
    "Collected",
    "CommandFailedError",
    "ContainerTimeouts",
    "CustomInstance",
    "Diff",
    "DirectoryBackup",
    "DiskUsage",
    "EngineUnreachableError",
    "Environment",
    "EventStream",
    "ExecEvent",
    "ExecResult",
    "ExecStream",
    "ExecutionComplete",
    "ExecutionError",
    "ExecutionLogs",
    "ExecutionResult",
    "Exited",
    "ExposedPort",
    "Failed",
    "FileInfo",
    "FileList",
    "FileMeta",
    "FileStream",
    "Forks",
    "Gap",
    "GitCheckout",
    "LateOutput",
    "LogMatch",
    "LogStream",
    "Metrics",
    "Namespace",
    "NetworkEvent",
    "NetworkLog",
    "NetworkPolicy",
    "PreviewLink",
    "Process",
    "ProcessHandle",
    "ProcessInfo",
    "ProcessLogs",
    "ReadFileResult",
    "Sandbox",
    "SandboxError",
    "SandboxEvent",
    "SandboxInfo",
    "SandboxPage",
    "ServiceResponse",
    "Session",
    "SessionInfo",
    "Snapshot",
    "SnapshotPage",
    "Started",
    "State",
    "Stderr",
    "Stdout",
    "Variable",
    "Version",
    "Visit",
    "Volume",
    "VolumeFile",
    "VolumeFileList",
    "VolumeInfo",
    "VolumePage",
    "WatchEvent",
    "WatchStream",
    "WebSocket",
    "WriteResult",
    "__version__",
    "connect",
    "errors",
    "get_sandbox",
    "local",
    "parse_sse_stream",
    "proxy_to_sandbox",
    "secret",
    "sync",
]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"atoll.{name}")
    # Every error of the tree is a name of this module too, as `except atoll.TimeoutError`.
    value = getattr(import_module(_HOME.get(name, "atoll.errors")), name, None)
    if value is None or (name not in _HOME and not name.endswith("Error")):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
