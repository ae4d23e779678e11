"""The table of the native API: one typed value per operation.

Server routes, the SDK's calls and the OpenAPI document are built from this table. An operation's
name, method and path are never changed once released; fields are only added, with defaults.

Kinds of operations:

* unary: JSON in, JSON out (GET and DELETE take the request's fields from the query);
* stream: answers with frames, server-sent events or NDJSON, as `Accept` asks;
* upload, download: one side of the body is raw bytes; the request's fields are in the query.
"""

from atoll.wire import (
    egress,
    files,
    git,
    interpreter,
    keys,
    namespaces,
    objects,
    pool,
    ports,
    process,
    sandbox,
    secrets,
)
from atoll.wire.base import Done, Empty, Request, Whole
from atoll.wire.keys import Scope
from atoll.wire.operation import *  # noqa: F403  # one name for callers
from atoll.wire.operation import NAMESPACE, SANDBOX, Kind, Op
from atoll.wire.ops_storage import *  # noqa: F403  # likewise; part of the table

API_VERSION = 2

API_HEADER = "Atoll-Api"
"""Header by which a client says which `API_VERSION` it speaks; engines refuse all but theirs."""

LIFE_HEADER = "Atoll-Life"
"""Header by which a call means the sandbox that it knows (`SessionInfo.life`), and no later one of
its name: 409 `STALE_HANDLE` when that one was destroyed."""

RESULT_HEADER = "Atoll-Result"
"""Header of a download's answer that carries the operation's result as ASCII JSON: a
`files.FileMeta` whose `size` is the whole file's, also when the body is only a part of it."""

OPERATION = SANDBOX + "/operations/{operation}"
_READ, _ADMIN = Scope.READ, Scope.ADMIN

VERSION = Op("version", "GET", "/v2/version", Empty, sandbox.Version, scope=_READ, shared=True)

CONFIGURE_NAMESPACE = Op(
    "configure_namespace", "PUT", NAMESPACE, sandbox.NamespaceConfig, Done, scope=_ADMIN
)

LIST_NAMESPACES = Op(
    "list_namespaces",
    "GET",
    "/v2/namespaces",
    namespaces.NamespaceQuery,
    namespaces.NamespacePage,
    scope=_ADMIN,
)


class ListSandboxes(Request, frozen=True, kw_only=True):
    """Which sandboxes to list. `labels` are written ``key=value``, comma separated."""

    labels: str | None = None
    state: str | None = None
    cursor: str | None = None
    limit: Whole = 100


LIST_SANDBOXES = Op(
    "list_sandboxes",
    "GET",
    NAMESPACE + "/sandboxes",
    ListSandboxes,
    sandbox.SandboxPage,
    scope=_READ,
)
ENSURE = Op("ensure_sandbox", "PUT", SANDBOX, sandbox.SandboxOptions, sandbox.SandboxInfo)
INFO = Op("get_sandbox", "GET", SANDBOX, Empty, sandbox.SandboxInfo, scope=_READ)
DESTROY = Op("destroy_sandbox", "DELETE", SANDBOX, Empty, Done)
START = Op("start_sandbox", "POST", SANDBOX + "/start", Empty, sandbox.SandboxInfo)
STOP = Op("stop_sandbox", "POST", SANDBOX + "/stop", sandbox.StopRequest, sandbox.SandboxInfo)
SLEEP = Op("sleep_sandbox", "POST", SANDBOX + "/sleep", Empty, sandbox.SandboxInfo)
RENEW = Op("renew_activity_timeout", "POST", SANDBOX + "/activity", Empty, Done)
METRICS = Op("metrics", "GET", SANDBOX + "/metrics", Empty, sandbox.Metrics, scope=_READ)


EVENTS = Op(
    "events", "GET", SANDBOX + "/events", sandbox.EventsQuery, sandbox.SandboxEvent,
    kind=Kind.STREAM, scope=_READ,
)  # fmt: skip

NETWORK = SANDBOX + "/network"
CHANGE_NETWORK = Op("change_network", "POST", NETWORK, egress.ChangeNetwork, egress.NetworkPolicy)
GET_NETWORK = Op("get_network", "GET", NETWORK, Empty, egress.NetworkPolicy, scope=_READ)
NETWORK_LOG = Op(
    "network_log", "GET", NETWORK + "/log", egress.NetworkLogQuery, egress.NetworkEvent,
    kind=Kind.STREAM, scope=_READ,
)  # fmt: skip

EXEC = Op(
    "exec", "POST", SANDBOX + "/exec", process.ExecRequest, process.ExecResult, kind=Kind.STREAM
)


class Attach(Request, frozen=True, kw_only=True):
    """From which offset of the combined output on."""

    from_offset: Whole = 0


ATTACH = Op(
    "attach_operation", "GET", OPERATION, Attach, process.ExecResult, kind=Kind.STREAM, scope=_READ
)
CANCEL = Op("cancel_operation", "DELETE", OPERATION, Empty, Done)
SIGNAL = Op("signal_operation", "POST", OPERATION + "/signal", process.SignalRequest, Done)
RESIZE = Op("resize_operation", "POST", OPERATION + "/resize", process.ResizeRequest, Done)


class Stdin(Request, frozen=True, kw_only=True):
    """A piece of standard input. `close` ends it after these bytes."""

    close: bool = False


STDIN = Op("write_stdin", "POST", OPERATION + "/stdin", Stdin, Done, kind=Kind.UPLOAD)

FILES = SANDBOX + "/files"


class ReadFile(files.PathRequest, frozen=True, kw_only=True):
    """What to read: `length` bytes from `offset` on, or all."""

    offset: Whole = 0
    length: Whole | None = None


class WriteFile(files.PathRequest, frozen=True, kw_only=True):
    """Where to write the body. `mode` is a number in decimal; `append` writes in place."""

    mode: Whole | None = None
    append: bool = False


READ_FILE = Op("read_file", "GET", FILES, ReadFile, files.FileMeta, kind=Kind.DOWNLOAD, scope=_READ)
WRITE_FILE = Op("write_file", "PUT", FILES, WriteFile, files.WriteResult, kind=Kind.UPLOAD)
DELETE_FILE = Op("delete_file", "DELETE", FILES, files.DeleteRequest, Done)
MKDIR = Op("mkdir", "POST", FILES + "/mkdir", files.MkdirRequest, Done)
RENAME = Op("rename_file", "POST", FILES + "/rename", files.TransferRequest, Done)
MOVE = Op("move_file", "POST", FILES + "/move", files.TransferRequest, Done)
COPY = Op("copy_file", "POST", FILES + "/copy", files.TransferRequest, Done)
EXISTS = Op("exists", "GET", FILES + "/exists", files.PathRequest, files.Exists, scope=_READ)
STAT = Op("stat", "GET", FILES + "/stat", files.PathRequest, files.FileInfo, scope=_READ)
LIST_FILES = Op(
    "list_files", "GET", FILES + "/list", files.ListRequest, files.FileList, scope=_READ
)
SET_PERMISSIONS = Op(
    "set_permissions", "POST", FILES + "/permissions", files.PermissionsRequest, files.FileInfo
)
SEARCH_FILES = Op(
    "search_files",
    "GET",
    FILES + "/search",
    files.SearchRequest,
    files.PathList,
    scope=_READ,
)
FIND_IN_FILES = Op(
    "find_in_files", "GET", FILES + "/find", files.FindRequest, files.MatchList, scope=_READ
)
REPLACE_IN_FILES = Op(
    "replace_in_files", "POST", FILES + "/replace", files.ReplaceRequest, files.Replacements
)
DOWNLOAD = Op(
    "download",
    "GET",
    FILES + "/archive",
    files.DownloadRequest,
    files.Archive,
    kind=Kind.DOWNLOAD,
    scope=_READ,
)
UPLOAD = Op(
    "upload",
    "PUT",
    FILES + "/archive",
    files.UploadRequest,
    files.UploadResult,
    kind=Kind.UPLOAD,
)
WATCH = Op(
    "watch",
    "POST",
    FILES + "/watch",
    files.WatchRequest,
    files.WatchEvent,
    kind=Kind.STREAM,
    scope=_READ,
)
CHECK_CHANGES = Op(
    "check_changes", "POST", FILES + "/changes", files.ChangesRequest, files.Changes, scope=_READ
)

GIT_CHECKOUT = Op(
    "git_checkout", "POST", SANDBOX + "/git/checkout", git.GitCheckoutRequest, git.GitCheckout
)

SESSIONS = SANDBOX + "/sessions"
CREATE_SESSION = Op(
    "create_session", "POST", SESSIONS, process.CreateSessionRequest, process.SessionInfo
)
LIST_SESSIONS = Op("list_sessions", "GET", SESSIONS, Empty, process.SessionList, scope=_READ)
GET_SESSION = Op(
    "get_session", "GET", SESSIONS + "/{session}", Empty, process.SessionInfo, scope=_READ
)
DELETE_SESSION = Op("delete_session", "DELETE", SESSIONS + "/{session}", Empty, Done)
SET_ENV = Op("set_env_vars", "POST", SANDBOX + "/env", process.EnvRequest, Done)

PROCESSES = SANDBOX + "/processes"
PROCESS = PROCESSES + "/{process}"
START_PROCESS = Op(
    "start_process", "POST", PROCESSES, process.StartProcessRequest, process.ProcessInfo
)
LIST_PROCESSES = Op("list_processes", "GET", PROCESSES, Empty, process.ProcessList, scope=_READ)
KILL_ALL_PROCESSES = Op("kill_all_processes", "DELETE", PROCESSES, process.KillAll, process.Count)
CLEANUP_PROCESSES = Op(
    "cleanup_completed_processes", "POST", PROCESSES + "/cleanup", Empty, process.Count
)
GET_PROCESS = Op(
    "get_process", "GET", PROCESS, process.ProcessQuery, process.ProcessInfo,
    scope=_READ, waits=True,
)  # fmt: skip
KILL_PROCESS = Op("kill_process", "DELETE", PROCESS, process.KillProcess, process.ProcessInfo)
PROCESS_LOGS = Op(
    "get_process_logs", "GET", PROCESS + "/logs", process.LogsRequest, process.ProcessLogs,
    scope=_READ,
)  # fmt: skip
STREAM_PROCESS_LOGS = Op(
    "stream_process_logs", "GET", PROCESS + "/logs/stream", process.LogsQuery,
    process.ProcessLogs, kind=Kind.STREAM, scope=_READ,
)  # fmt: skip
WAIT_FOR_PORT = Op(
    "wait_for_port", "POST", PROCESS + "/port", process.WaitForPort, process.PortAnswer,
    scope=_READ, waits=True,
)  # fmt: skip


CALL = Op("call_method", "POST", SANDBOX + "/call", objects.CallRequest, objects.CallResult)
SCHEDULES = SANDBOX + "/schedules"
ADD_SCHEDULE = Op("schedule", "POST", SCHEDULES, objects.ScheduleRequest, objects.Schedule)
LIST_SCHEDULES = Op("list_schedules", "GET", SCHEDULES, Empty, objects.ScheduleList, scope=_READ)
CANCEL_SCHEDULE = Op("cancel_schedule", "DELETE", SCHEDULES + "/{schedule}", Empty, Done)
SET_ALARM = Op("set_alarm", "PUT", SANDBOX + "/alarm", objects.SetAlarm, objects.Alarm)
GET_ALARM = Op("get_alarm", "GET", SANDBOX + "/alarm", Empty, objects.Alarm, scope=_READ)
DELETE_ALARM = Op("delete_alarm", "DELETE", SANDBOX + "/alarm", Empty, Done)

PROJECT = "/v2/projects/{project}"
CONFIGURE_PROJECT = Op(
    "configure_project", "PUT", PROJECT, objects.ProjectConfig, objects.Project, scope=_ADMIN
)
ATTACH_WORKER = Op(
    "attach_worker", "POST", PROJECT + "/worker", objects.AttachWorker, objects.Attached,
    kind=Kind.STREAM, scope=_ADMIN,
)  # fmt: skip
ANSWER_CALL = Op(
    "answer_call", "POST", PROJECT + "/calls/{call}", objects.Answer, Done, scope=_ADMIN
)

PORTS = SANDBOX + "/ports"
PORT = PORTS + "/{port}"
EXPOSE_PORT = Op("expose_port", "POST", PORTS, ports.ExposePort, ports.ExposedPort)
LIST_PORTS = Op("get_exposed_ports", "GET", PORTS, ports.ListPorts, ports.ExposedPorts, scope=_READ)
WAIT_FOR_PORTS = Op(
    "wait_for_ports", "POST", PORTS + "/wait", ports.WaitForPorts, ports.PortsReady, waits=True
)
CHECK_PORT = Op("check_port", "GET", PORT, ports.CheckPort, ports.PortState, scope=_READ)
UNEXPOSE_PORT = Op("unexpose_port", "DELETE", PORT, Empty, Done)
PREVIEW_LINK = Op("preview_link", "POST", PORT + "/link", ports.MakeLink, ports.PreviewLink)
PREVIEW_LOG = Op("preview_log", "GET", PORT + "/log", Empty, ports.AccessLog, scope=_READ)
TUNNEL = PORT + "/tunnel"
OPEN_TUNNEL = Op("open_tunnel", "POST", TUNNEL, ports.OpenTunnel, ports.Tunnel)
DESTROY_TUNNEL = Op("destroy_tunnel", "DELETE", TUNNEL, Empty, Done)
LIST_TUNNELS = Op("list_tunnels", "GET", SANDBOX + "/tunnels", Empty, ports.TunnelList, scope=_READ)
CONNECT_PORT = Op(
    "connect_port", "GET", PORT + "/connect", ports.ConnectPort, Done,
    kind=Kind.STREAM, waits=True,
)  # fmt: skip
CONNECT_PREVIEWS = Op(
    "connect_previews", "GET", "/v2/previews", ports.ConnectPreviews, Done,
    kind=Kind.STREAM, shared=True,
)  # fmt: skip


CONTEXTS = SANDBOX + "/contexts"
CONTEXT = CONTEXTS + "/{context}"
CREATE_CONTEXT = Op(
    "create_code_context", "POST", CONTEXTS, interpreter.CreateContextRequest,
    interpreter.ContextInfo,
)  # fmt: skip
LIST_CONTEXTS = Op(
    "list_code_contexts", "GET", CONTEXTS, Empty, interpreter.ContextList, scope=_READ
)
DELETE_CONTEXT = Op("delete_code_context", "DELETE", CONTEXT, Empty, Done)
INTERRUPT_CONTEXT = Op(
    "interrupt_code_context", "POST", CONTEXT + "/interrupt", Empty, interpreter.Interrupted
)
CONTEXT_VARIABLES = Op(
    "list_code_variables", "GET", CONTEXT + "/variables", Empty, interpreter.VariableList,
    scope=_READ,
)  # fmt: skip
RUN_CODE = Op(
    "run_code", "POST", SANDBOX + "/code", interpreter.RunCodeRequest,
    interpreter.ExecutionResult, kind=Kind.STREAM,
)  # fmt: skip


class BuildImage(Request, frozen=True, kw_only=True):
    """Build the Dockerfile of an uploaded context (the body is a tar archive)."""

    tag: str
    dockerfile: str = "Dockerfile"


BUILD_IMAGE = Op(
    "build_image", "POST", "/v2/images/build", BuildImage, sandbox.BuildDone,
    kind=Kind.UPLOAD, scope=_ADMIN,
)  # fmt: skip
BUILD_BASE = Op(
    "build_base", "POST", "/v2/images/base", Empty, sandbox.BuildDone,
    kind=Kind.STREAM, scope=_ADMIN,
)  # fmt: skip
LIST_IMAGES = Op("list_images", "GET", "/v2/images", Empty, sandbox.ImageList, scope=_READ)

POOL = "/v2/pool"
POOL_STATS = Op("pool_stats", "GET", POOL, Empty, pool.PoolStats, scope=_READ)
PRIME_POOL = Op("prime_pool", "POST", POOL + "/prime", pool.Prime, pool.PoolStats, scope=_ADMIN)
SHUTDOWN_POOL = Op("shutdown_pool", "POST", POOL + "/shutdown", Empty, pool.PoolStats, scope=_ADMIN)

KEYS = "/v2/keys"
CREATE_KEY = Op("create_key", "POST", KEYS, keys.CreateKey, keys.CreatedKey, scope=_ADMIN)
LIST_KEYS = Op("list_keys", "GET", KEYS, Empty, keys.KeyList, scope=_ADMIN)
REVOKE_KEY = Op("revoke_key", "DELETE", KEYS + "/{key}", Empty, Done, scope=_ADMIN)
SECRETS = NAMESPACE + "/secrets"
PUT_SECRET = Op(
    "put_secret", "PUT", SECRETS + "/{secret}", secrets.PutSecret, secrets.SecretInfo, scope=_ADMIN
)
LIST_SECRETS = Op("list_secrets", "GET", SECRETS, Empty, secrets.SecretList, scope=_READ)
DELETE_SECRET = Op("delete_secret", "DELETE", SECRETS + "/{secret}", Empty, Done, scope=_ADMIN)
LIST_AUDIT = Op("list_audit", "GET", "/v2/audit", keys.AuditQuery, keys.AuditPage, scope=_ADMIN)

TABLE: tuple[Op, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Op))  # type: ignore[type-arg]
"""Every operation, in the order of this file."""
