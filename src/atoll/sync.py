"""The blocking SDK: every name of `atoll`, for code without an event loop.

    import atoll.sync as atoll

    with atoll.local() as env:
        sandbox = atoll.get_sandbox(env.Sandbox, "my-sandbox")
        result = sandbox.exec("echo hello")

Its calls may be made from several threads at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from atoll import __version__

if TYPE_CHECKING:
    from atoll import errors
    from atoll.errors import *  # noqa: F403
    from atoll.errors import CommandFailedError, EngineUnreachableError, SandboxError
    from atoll.sdk._logs import LogMatch
    from atoll.sdk._results import ContainerTimeouts, ReadFileResult, State
    from atoll.sdk._secret import secret
    from atoll.sdk._sync.background import Process
    from atoll.sdk._sync.environment import (
        Environment,
        Namespace,
        connect,
        get_sandbox,
    )
    from atoll.sdk._sync.events import EventStream
    from atoll.sdk._sync.filestream import FileStream
    from atoll.sdk._sync.interpreter import CodeContext, CodeStream
    from atoll.sdk._sync.local import local
    from atoll.sdk._sync.logs import LogStream
    from atoll.sdk._sync.network import NetworkLog
    from atoll.sdk._sync.previews import proxy_to_sandbox
    from atoll.sdk._sync.process import ProcessHandle
    from atoll.sdk._sync.sandbox import Sandbox
    from atoll.sdk._sync.service import ServiceResponse
    from atoll.sdk._sync.session import Session
    from atoll.sdk._sync.snapshots import Diff, Forks
    from atoll.sdk._sync.streams import ExecStream, parse_sse_stream
    from atoll.sdk._sync.volumes import Volume
    from atoll.sdk._sync.watch import WatchStream
    from atoll.sdk._sync.websocket import WebSocket
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

_MODULES = {
    "atoll.errors": "CommandFailedError EngineUnreachableError SandboxError",
    "atoll.sdk._sync.environment": "Environment Namespace connect get_sandbox",
    "atoll.sdk._sync.previews": "proxy_to_sandbox",
    "atoll.sdk._secret": "secret",
    "atoll.sdk._sync.events": "EventStream",
    "atoll.sdk._sync.filestream": "FileStream",
    "atoll.sdk._sync.interpreter": "CodeContext CodeStream",
    "atoll.sdk._sync.local": "local",
    "atoll.sdk._sync.background": "Process",
    "atoll.sdk._sync.logs": "LogStream",
    "atoll.sdk._sync.network": "NetworkLog",
    "atoll.sdk._sync.process": "ProcessHandle",
    "atoll.sdk._logs": "LogMatch",
    "atoll.sdk._sync.sandbox": "Sandbox",
    "atoll.sdk._sync.session": "Session",
    "atoll.sdk._sync.snapshots": "Diff Forks",
    "atoll.sdk._sync.streams": "ExecStream parse_sse_stream",
    "atoll.sdk._sync.volumes": "Volume",
    "atoll.sdk._sync.watch": "WatchStream",
    "atoll.sdk._results": "ContainerTimeouts ReadFileResult State",
    "atoll.wire.files": "Changes FileInfo FileList FileMeta WatchEvent WriteResult",
    "atoll.wire.git": "GitCheckout",
    "atoll.wire.egress": "NetworkEvent NetworkPolicy",
    "atoll.wire.ports": "ExposedPort PreviewLink Visit",
    "atoll.sdk._sync.service": "ServiceResponse",
    "atoll.sdk._sync.websocket": "WebSocket",
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
}
_SUBMODULES = {"errors"}
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
