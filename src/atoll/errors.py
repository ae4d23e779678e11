"""Every failure that can cross a process boundary, with its code, HTTP status and retryability.

One registry serves the HTTP envelope, the agent protocol, the SDK's classes and the command
line's exit codes. Codes are append-only: clients compare them. A program that exits non-zero is
a result, never an error; failing to run it is an error.

The agent carries this file into every sandbox, so it imports the standard library only.
"""

import builtins
import errno
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

MAX_MESSAGE = 2_048
MAX_FACT = 4_096
"""Characters of a message, and of a text in `context`, on the wire: callers choose what is in them,
and an answer that is too long for its reader would be no answer."""

_REGISTRY: dict[str, type["SandboxError"]] = {}


class SandboxError(Exception):
    """Root of the tree; also what an unknown code of a newer engine becomes.

    Attributes:
        code: stable identifier, upper snake case.
        http_status: status of the HTTP answer that carries it.
        retryable: whether the same call may succeed later although nothing was changed.
        context: JSON-serialisable facts (path, port, limit, exit code, …).
        suggestion: what the caller can do about it, or ``None``.
        request_id: finds the request in the engine's log, or ``None``.
        retry_after: seconds to wait before trying again, or ``None``.
        result: partial result of the operation (``TIMEOUT``), or ``None``; never on the wire.
    """

    code: ClassVar[str] = "SANDBOX_ERROR"
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str = "",
        *,
        context: Mapping[str, Any] | None = None,
        suggestion: str | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message or (type(self).__doc__ or self.code).splitlines()[0]
        self.context = dict(context or {})
        self.suggestion = suggestion
        self.request_id = request_id
        self.retry_after = retry_after
        self.result: Any = None
        self.wire_code = type(self).code
        self.wire_status = type(self).http_status

    def __init_subclass__(
        cls, *, code: str = "", status: int = 0, retryable: bool = False, **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        if not code:
            return
        if code in _REGISTRY:
            raise TypeError(f"error code {code} is registered twice")
        cls.code, cls.http_status, cls.retryable = code, status, retryable
        _REGISTRY[code] = cls

    def __str__(self) -> str:
        # OSError's own __str__ would print its errno arguments, which are never set here.
        return f"{self.message} ({self.suggestion})" if self.suggestion else self.message

    def __reduce__(self) -> tuple[Callable[..., "SandboxError"], tuple[dict[str, Any]]]:
        return from_wire, (self.to_wire(),)

    def to_wire(self) -> dict[str, Any]:
        """Return the envelope without ``timestamp``, which belongs to the answer, not the error."""
        wire: dict[str, Any] = {
            "code": self.wire_code,
            "message": _cut(self.message, MAX_MESSAGE),
            "context": {
                name: _cut(fact, MAX_FACT) if isinstance(fact, str) else fact
                for name, fact in self.context.items()
            },
            "httpStatus": self.wire_status,
            "suggestion": self.suggestion,
            "requestId": self.request_id,
        }
        if self.retry_after is not None:
            wire["retryAfter"] = self.retry_after
        return wire


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def from_wire(body: Any, status: int = 500) -> SandboxError:
    """Rebuild an error from its envelope; anything malformed becomes a plain SandboxError.

    A code this version does not know keeps its code and status and degrades to `SandboxError`.
    """
    if not isinstance(body, dict):
        return _unknown("SANDBOX_ERROR", status, f"malformed error answer (HTTP {status})")
    code = str(body.get("code") or "SANDBOX_ERROR")
    message = str(body.get("message") or "")
    context = body.get("context")
    cls = _REGISTRY.get(code)
    wire_status = body.get("httpStatus")
    error = (
        cls(message)
        if cls
        else _unknown(code, wire_status if isinstance(wire_status, int) else status, message)
    )
    error.context = dict(context) if isinstance(context, dict) else {}
    suggestion, request_id = body.get("suggestion"), body.get("requestId")
    error.suggestion = suggestion if isinstance(suggestion, str) else None
    error.request_id = request_id if isinstance(request_id, str) else None
    retry_after = body.get("retryAfter")
    error.retry_after = float(retry_after) if isinstance(retry_after, int | float) else None
    return error


def _unknown(code: str, status: int, message: str) -> SandboxError:
    error = SandboxError(message or code)
    error.wire_code, error.wire_status = code, status
    return error


def registry() -> Mapping[str, type[SandboxError]]:
    """Return code → class for every registered error, in order of registration."""
    return dict(_REGISTRY)


class IsDirectoryError(SandboxError, builtins.IsADirectoryError, code="IS_DIRECTORY", status=400):
    """The path names a directory where a file was needed."""


class NotDirectoryError(
    SandboxError, builtins.NotADirectoryError, code="NOT_DIRECTORY", status=400
):
    """A part of the path is not a directory."""


class InvalidCommandError(SandboxError, ValueError, code="INVALID_COMMAND", status=400):
    """The command is empty, has a NUL byte, or is otherwise not runnable text or argv."""


class InvalidPortError(SandboxError, ValueError, code="INVALID_PORT", status=400):
    """The port may not be used for this (reserved or out of range)."""


class InvalidPortNumberError(SandboxError, ValueError, code="INVALID_PORT_NUMBER", status=400):
    """The port is not a whole number from 1 to 65535."""


class InvalidGitUrlError(SandboxError, ValueError, code="INVALID_GIT_URL", status=400):
    """The repository address is not one that git may be given."""


class CustomDomainRequiredError(SandboxError, code="CUSTOM_DOMAIN_REQUIRED", status=400):
    """Previews need a host name with wildcard records; this one has none."""


class NameTooLongError(SandboxError, OSError, code="NAME_TOO_LONG", status=400):
    """A path component or name is over the file system's limit (255 bytes)."""


class ValidationFailedError(SandboxError, ValueError, code="VALIDATION_FAILED", status=400):
    """A request has a missing, unknown or malformed field; `context` names it."""


class MissingCredentialsError(SandboxError, code="MISSING_CREDENTIALS", status=400):
    """A bucket needs credentials and none were found."""


class InvalidMountConfigError(SandboxError, ValueError, code="INVALID_MOUNT_CONFIG", status=400):
    """A mount request contradicts itself or names a path that cannot be mounted."""


class BackupExpiredError(SandboxError, code="BACKUP_EXPIRED", status=400):
    """The backup's time to live is over."""


class InvalidBackupConfigError(SandboxError, ValueError, code="INVALID_BACKUP_CONFIG", status=400):
    """A backup request is malformed (directory outside the allowed roots, bad id)."""


class SecurityError(SandboxError, code="SECURITY_ERROR", status=400):
    """The request was refused because it would reach outside the sandbox."""


class InvalidSandboxIdError(SandboxError, ValueError, code="INVALID_SANDBOX_ID", status=400):
    """The sandbox id breaks the rules for ids, or for previews."""


class InvalidLanguageError(SandboxError, ValueError, code="INVALID_LANGUAGE", status=400):
    """The interpreter has no such language."""


class InvalidConfigError(SandboxError, ValueError, code="INVALID_CONFIG", status=400):
    """A configuration file or setting is wrong; `context` has file, line and column."""


class InvalidImageError(SandboxError, ValueError, code="INVALID_IMAGE", status=400):
    """The image reference or Dockerfile is malformed."""


class UnauthorizedError(SandboxError, code="UNAUTHORIZED", status=401):
    """No key, or a key the engine does not know."""


class GitAuthFailedError(SandboxError, code="GIT_AUTH_FAILED", status=401):
    """The git server refused the credentials."""


class PermissionDeniedError(SandboxError, PermissionError, code="PERMISSION_DENIED", status=403):
    """The sandbox's user may not do this to this path."""


class CommandPermissionDeniedError(
    SandboxError, PermissionError, code="COMMAND_PERMISSION_DENIED", status=403
):
    """The sandbox's user may not run this command."""


class ProcessPermissionDeniedError(
    SandboxError, PermissionError, code="PROCESS_PERMISSION_DENIED", status=403
):
    """The sandbox's user may not signal this process."""


class ReadOnlyError(SandboxError, OSError, code="READ_ONLY", status=403):
    """The file system or mount is read-only."""


class ForbiddenError(SandboxError, code="FORBIDDEN", status=403):
    """The key is known but its scopes do not allow this."""


class FileNotFoundError(
    SandboxError, builtins.FileNotFoundError, code="FILE_NOT_FOUND", status=404
):
    """No file or directory at this path."""


class CommandNotFoundError(SandboxError, code="COMMAND_NOT_FOUND", status=404):
    """No executable of this name (argv form only; a shell reports 127)."""


class ProcessNotFoundError(SandboxError, ProcessLookupError, code="PROCESS_NOT_FOUND", status=404):
    """No process with this id."""


class PortNotExposedError(SandboxError, code="PORT_NOT_EXPOSED", status=404):
    """The port is not exposed."""


class GitRepositoryNotFoundError(SandboxError, code="GIT_REPOSITORY_NOT_FOUND", status=404):
    """The git server knows no such repository."""


class GitBranchNotFoundError(SandboxError, code="GIT_BRANCH_NOT_FOUND", status=404):
    """The repository has no such branch."""


class ContextNotFoundError(SandboxError, LookupError, code="CONTEXT_NOT_FOUND", status=404):
    """No code context with this id."""


class WatchNotFoundError(SandboxError, LookupError, code="WATCH_NOT_FOUND", status=404):
    """No watch with this id."""


class SessionNotFoundError(SandboxError, LookupError, code="SESSION_NOT_FOUND", status=404):
    """No session with this id."""


class BackupNotFoundError(SandboxError, LookupError, code="BACKUP_NOT_FOUND", status=404):
    """No backup with this id."""


class SnapshotNotFoundError(SandboxError, LookupError, code="SNAPSHOT_NOT_FOUND", status=404):
    """No snapshot with this id."""


class SandboxNotFoundError(SandboxError, LookupError, code="SANDBOX_NOT_FOUND", status=404):
    """No sandbox with this id (only calls that never create one raise this)."""


class InvalidTokenError(SandboxError, code="INVALID_TOKEN", status=404):
    """The preview token is wrong or was revoked."""


class ImageNotFoundError(SandboxError, LookupError, code="IMAGE_NOT_FOUND", status=404):
    """The image is neither stored here nor found at its registry."""


class VolumeNotFoundError(SandboxError, LookupError, code="VOLUME_NOT_FOUND", status=404):
    """No volume with this name."""


class MountNotFoundError(SandboxError, LookupError, code="MOUNT_NOT_FOUND", status=404):
    """Nothing is mounted at this path."""


class SecretNotFoundError(SandboxError, LookupError, code="SECRET_NOT_FOUND", status=404):
    """No secret with this name."""


class OperationNotFoundError(SandboxError, LookupError, code="OPERATION_NOT_FOUND", status=404):
    """No operation with this id, or its output is no longer kept."""


class KeyNotFoundError(SandboxError, code="KEY_NOT_FOUND", status=404):
    """There is no API key with this id."""


class MethodNotFoundError(SandboxError, AttributeError, code="METHOD_NOT_FOUND", status=404):
    """The sandbox class has no such method, or no Worker serves the namespace."""


class RouteNotFoundError(SandboxError, LookupError, code="ROUTE_NOT_FOUND", status=404):
    """The HTTP API has no such route."""


class TimeoutError(SandboxError, builtins.TimeoutError, code="TIMEOUT", status=408):
    """The operation's time is over; `result` holds what there is of it."""


class ProcessReadyTimeoutError(
    SandboxError, builtins.TimeoutError, code="PROCESS_READY_TIMEOUT", status=408
):
    """The process did not become ready in time."""


class FileExistsError(SandboxError, builtins.FileExistsError, code="FILE_EXISTS", status=409):
    """Something already stands at this path."""


class PortAlreadyExposedError(SandboxError, code="PORT_ALREADY_EXPOSED", status=409):
    """The port is exposed with another token or name."""


class PortInUseError(SandboxError, code="PORT_IN_USE", status=409):
    """Another program listens on this port."""


class ResourceBusyError(SandboxError, OSError, code="RESOURCE_BUSY", status=409):
    """In use, or the sandbox does as much at once as it may: nobody can tell how long, so the SDK does not try again."""


class SessionAlreadyExistsError(SandboxError, code="SESSION_ALREADY_EXISTS", status=409):
    """A session with this id exists."""


class OperationInterruptedError(SandboxError, code="OPERATION_INTERRUPTED", status=409):
    """The operation was ended by a stop, restore or cancel."""


class StaleHandleError(SandboxError, code="STALE_HANDLE", status=409):
    """The handle belongs to an earlier process or an earlier start of the sandbox."""


class ProcessAlreadyExistsError(SandboxError, code="PROCESS_ALREADY_EXISTS", status=409):
    """A running process has this id."""


class SandboxAlreadyExistsError(SandboxError, code="SANDBOX_ALREADY_EXISTS", status=409):
    """A sandbox with this id exists."""


class IdempotencyConflictError(SandboxError, code="IDEMPOTENCY_CONFLICT", status=409):
    """The idempotency key was used for a different request."""


class VolumeInUseError(SandboxError, code="VOLUME_IN_USE", status=409):
    """The volume is mounted in a sandbox."""


class SnapshotInUseError(SandboxError, code="SNAPSHOT_IN_USE", status=409):
    """Something depends on the snapshot."""


class DeadlockError(SandboxError, RuntimeError, code="DEADLOCK", status=409):
    """The call would wait for itself: the object is closed by a call that waits for this one."""


class SessionDestroyedError(SandboxError, code="SESSION_DESTROYED", status=410):
    """The session was deleted while it was in use."""


class SessionTerminatedError(SandboxError, code="SESSION_TERMINATED", status=410):
    """The session's shell ended (`exit`, `exec`, a signal); `context` has exit_code and signal."""


class StalePreviewUrlError(SandboxError, code="STALE_PREVIEW_URL", status=410):
    """The token is right but the sandbox is not running, or was started again since."""


class SandboxDestroyedError(SandboxError, code="SANDBOX_DESTROYED", status=410):
    """The sandbox was destroyed while it was in use."""


class FileTooLargeError(SandboxError, OSError, code="FILE_TOO_LARGE", status=413):
    """The content is over a limit; `context` names the limit."""


class RangeNotSatisfiableError(SandboxError, ValueError, code="RANGE_NOT_SATISFIABLE", status=416):
    """The asked range lies outside the content."""


class VersionMismatchError(SandboxError, code="VERSION_MISMATCH", status=426):
    """Client and engine, or engine and agent, are too far apart in version."""


class RateLimitedError(SandboxError, code="RATE_LIMITED", status=429, retryable=True):
    """Too many requests; wait as `retry_after` says."""


class NoSpaceError(SandboxError, OSError, code="NO_SPACE", status=500):
    """The file system is full."""


class TooManyFilesError(SandboxError, OSError, code="TOO_MANY_FILES", status=500):
    """The process or system has no file descriptors left."""


class TooManyLinksError(SandboxError, OSError, code="TOO_MANY_LINKS", status=500):
    """Symbolic links form a loop, or a file has too many links."""


class FilesystemError(SandboxError, OSError, code="FILESYSTEM_ERROR", status=500):
    """The file system failed in another way; `context` has the errno."""


class CommandExecutionError(SandboxError, code="COMMAND_EXECUTION_ERROR", status=500):
    """The command could not be run (this is not an exit code)."""


class StreamStartError(SandboxError, code="STREAM_START_ERROR", status=500):
    """The output stream could not be opened."""


class ProcessError(SandboxError, code="PROCESS_ERROR", status=500):
    """The process could not be managed."""


class ProcessExitedBeforeReadyError(SandboxError, code="PROCESS_EXITED_BEFORE_READY", status=500):
    """The process ended before it was ready; `context` has exit code and log tail."""


class PortOperationError(SandboxError, code="PORT_OPERATION_ERROR", status=500):
    """The port could not be exposed or closed."""


class GitCloneFailedError(SandboxError, code="GIT_CLONE_FAILED", status=500):
    """git clone failed; the message is git's."""


class GitCheckoutFailedError(SandboxError, code="GIT_CHECKOUT_FAILED", status=500):
    """git checkout failed; the message is git's."""


class GitOperationFailedError(SandboxError, code="GIT_OPERATION_FAILED", status=500):
    """git failed; the message is git's."""


class CodeExecutionError(SandboxError, code="CODE_EXECUTION_ERROR", status=500):
    """The interpreter could not run the code (this is not an exception of the code)."""


class BucketMountError(SandboxError, code="BUCKET_MOUNT_ERROR", status=500):
    """The bucket could not be mounted; the message is the tool's."""


class BucketUnmountError(SandboxError, code="BUCKET_UNMOUNT_ERROR", status=500):
    """The bucket could not be unmounted."""


class S3fsMountError(SandboxError, code="S3FS_MOUNT_ERROR", status=500):
    """s3fs failed; the message is its own."""


class BackupCreateFailedError(SandboxError, code="BACKUP_CREATE_FAILED", status=500):
    """The backup could not be made; nothing was kept of it."""


class BackupRestoreFailedError(SandboxError, code="BACKUP_RESTORE_FAILED", status=500):
    """The backup could not be restored; the target is as it was."""


class WatchStartError(SandboxError, code="WATCH_START_ERROR", status=500):
    """The watch could not be started."""


class WatchStopError(SandboxError, code="WATCH_STOP_ERROR", status=500):
    """The watch could not be stopped."""


class KernelDiedError(SandboxError, code="KERNEL_DIED", status=500):
    """The interpreter's process ended; the context starts again, its state is lost."""


class ImageBuildFailedError(SandboxError, code="IMAGE_BUILD_FAILED", status=500):
    """The image could not be built; `context` has the log's tail."""


class TunnelError(SandboxError, code="TUNNEL_ERROR", status=500):
    """The tunnel's client failed."""


class HookFailedError(SandboxError, code="HOOK_FAILED", status=500):
    """A hook of the sandbox class raised."""


class MethodFailedError(SandboxError, code="METHOD_FAILED", status=500):
    """A method of the sandbox class raised; `context` has the exception's type."""


class SnapshotFailedError(SandboxError, code="SNAPSHOT_FAILED", status=500):
    """The snapshot could not be taken; nothing was kept of it."""


class InternalError(SandboxError, code="INTERNAL_ERROR", status=500):
    """A fault of the engine; the request id finds the traceback in its log."""


class PythonNotAvailableError(SandboxError, code="PYTHON_NOT_AVAILABLE", status=501):
    """The image has no Python."""


class JavascriptNotAvailableError(SandboxError, code="JAVASCRIPT_NOT_AVAILABLE", status=501):
    """The image has no JavaScript runtime."""


class NotSupportedByRuntimeError(
    SandboxError, NotImplementedError, code="NOT_SUPPORTED_BY_RUNTIME", status=501
):
    """The runtime in force cannot do this."""


class RuntimeNotAvailableError(SandboxError, code="RUNTIME_NOT_AVAILABLE", status=501):
    """The host has no such runtime; `suggestion` says what to install."""


class TunnelNotAvailableError(SandboxError, code="TUNNEL_NOT_AVAILABLE", status=501):
    """cloudflared is not installed on the engine's host."""


class ServiceNotRespondingError(SandboxError, code="SERVICE_NOT_RESPONDING", status=502):
    """Nothing answers on the port inside the sandbox."""


class GitNetworkError(SandboxError, code="GIT_NETWORK_ERROR", status=502):
    """The git server could not be reached."""


class ImagePullFailedError(SandboxError, code="IMAGE_PULL_FAILED", status=502):
    """The registry could not be reached or failed."""


class ContainerNotReadyError(SandboxError, code="CONTAINER_NOT_READY", status=503, retryable=True):
    """The sandbox is starting or stopping; try again."""


class ContainerUnavailableError(
    SandboxError, code="CONTAINER_UNAVAILABLE", status=503, retryable=True
):
    """The sandbox cannot start now; `context.reason` is capacity, image, network or runtime."""


class WorkerUnavailableError(SandboxError, code="WORKER_UNAVAILABLE", status=503, retryable=True):
    """The Worker that has the sandbox class is not running now; the call was not made."""


class InterpreterNotReadyError(
    SandboxError, code="INTERPRETER_NOT_READY", status=503, retryable=True
):
    """The interpreter is starting; try again."""


class MaxInstancesExceededError(
    SandboxError, code="MAX_INSTANCES_EXCEEDED", status=503, retryable=True
):
    """The namespace or node runs as many sandboxes as it may; try again later."""


class DiskQuotaExceededError(SandboxError, OSError, code="DISK_QUOTA_EXCEEDED", status=507):
    """The sandbox's disk limit is reached."""


class CommandFailedError(SandboxError):
    """Raised by ``check=True`` in the SDK only; ``result`` is the whole `ExecResult`."""


class EngineUnreachableError(SandboxError, ConnectionError):
    """No engine answers at the address; raised by clients only, it never crosses the wire."""


_BY_ERRNO: dict[int, type[SandboxError]] = {
    errno.ENOENT: FileNotFoundError,
    errno.EEXIST: FileExistsError,
    errno.ENOTEMPTY: FileExistsError,
    errno.EISDIR: IsDirectoryError,
    errno.ENOTDIR: NotDirectoryError,
    errno.EACCES: PermissionDeniedError,
    errno.EPERM: PermissionDeniedError,
    errno.EROFS: ReadOnlyError,
    errno.ENOSPC: NoSpaceError,
    errno.EDQUOT: DiskQuotaExceededError,
    errno.EMFILE: TooManyFilesError,
    errno.ENFILE: TooManyFilesError,
    errno.ELOOP: TooManyLinksError,
    errno.EMLINK: TooManyLinksError,
    errno.ENAMETOOLONG: NameTooLongError,
    errno.EBUSY: ResourceBusyError,
    errno.ETXTBSY: ResourceBusyError,
    errno.EXDEV: SecurityError,
}


def from_os_error(error: OSError, path: str) -> SandboxError:
    """Map the errno of a failed file system call on *path* to its typed error."""
    cls = _BY_ERRNO.get(error.errno or 0, FilesystemError)
    name = errno.errorcode.get(error.errno or 0, "unknown")
    reason = error.strerror or str(error)
    return cls(f"{reason}: {path}", context={"path": path, "errno": name})
