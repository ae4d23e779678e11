"""A sandbox: commands, files, sessions, and its life."""

from collections.abc import Mapping
from typing import Any

from atoll.sdk import _arguments, _shared
from atoll.sdk._sync.backups import Backups
from atoll.sdk._sync.commands import Commands
from atoll.sdk._sync.git import Git
from atoll.sdk._sync.hooks import Hooks
from atoll.sdk._sync.interpreter import Interpreter
from atoll.sdk._sync.life import Life
from atoll.sdk._sync.mounts import Mounts
from atoll.sdk._sync.network import Network
from atoll.sdk._sync.objects import Objects
from atoll.sdk._sync.ports import Ports
from atoll.sdk._sync.processes import Processes
from atoll.sdk._sync.session import Session
from atoll.sdk._sync.snapshots import Snapshots
from atoll.sdk._sync.target import Address
from atoll.sdk._sync.transfer import Transfers
from atoll.sdk._results import State
from atoll.wire import ids, ops
from atoll.wire.base import Duration, Empty
from atoll.wire.process import CreateSessionRequest, SessionInfo
from atoll.wire.sandbox import SandboxInfo, StopRequest


class Sandbox(
    Commands,
    Processes,
    Transfers,
    Git,
    Ports,
    Objects,
    Hooks,
    Life,
    Snapshots,
    Backups,
    Mounts,
    Network,
    Interpreter,
):
    """One sandbox. The same id in the same namespace is always the same one.

    Made by `get_sandbox`, without any I/O: the first operation creates or wakes it. A Worker
    derives its sandbox classes from it; the host makes their objects, one for each id in use.

    Args:
        ctx: where it is; of an object in a Worker, its context.
        env: of an object in a Worker, the Worker's.
    """

    def __init__(self, ctx: Any, env: Any = None) -> None:
        super().__init__(ctx if isinstance(ctx, Address) else ctx.address)
        self.ctx = ctx
        self.env = env

    def on_activity_expired(self) -> None:
        """Called when it was idle for `sleep_after`. One that does not stop it renews the time."""
        self.stop()

    @property
    def id(self) -> str:
        """The sandbox's id."""
        return self._address.id

    @property
    def namespace(self) -> str:
        """The name of its namespace."""
        return self._address.namespace

    def __repr__(self) -> str:
        return f"<Sandbox {self.namespace}/{self.id}>"

    def create_session(
        self,
        *,
        id: str | None = None,
        name: str | None = None,
        env: Mapping[str, str | None] | None = None,
        cwd: str | None = None,
        user: str | int | None = None,
        isolation: bool = False,
        command_timeout: Duration | None = None,
    ) -> Session:
        """Make a session: a shell state of its own.

        Args:
            id: 1 to 128 letters, digits, ``.``, ``_`` or ``-``; a random one when not given.
            name: for people.
            env: variables of the session; None unsets one of the sandbox.
            cwd: where it starts, and starts again after its shell ended; an absolute path. It is
                not looked at now: when it is missing, commands fail with `FileNotFoundError`.
            user: whose rights its commands and file calls have.
            isolation: its processes have a view of their own: they see and can signal only each
                other, and their pids are those of that view.
            command_timeout: default time limit of its commands.

        Raises:
            SessionAlreadyExistsError: there is one with this id.
            NotSupportedByRuntimeError: isolation was asked for and cannot be had here.
        """
        request = CreateSessionRequest(
            id=ids.check_session(id) if id is not None else None,
            name=name,
            env=_arguments.mapping("env", env),
            cwd=cwd,
            user=_arguments.user(user),
            isolation=isolation,
            command_timeout_ms=_arguments.time_limit(command_timeout),
        )
        return Session(self._address, self._call(ops.CREATE_SESSION, request))

    def get_session(self, id: str) -> Session:
        """Return the session with this id.

        Raises:
            SessionNotFoundError: there is none.
        """
        more = {"session": ids.check_session(id)}
        return Session(self._address, self._call(ops.GET_SESSION, Empty(), more=more))

    def delete_session(self, id: str) -> None:
        """End a session and every process started in it."""
        more = {"session": ids.check_session(id)}
        self._call(ops.DELETE_SESSION, Empty(), more=more)

    def list_sessions(self) -> list[SessionInfo]:
        """Return all sessions."""
        return (self._call(ops.LIST_SESSIONS, Empty())).sessions

    def start(self) -> SandboxInfo:
        """Create or wake the sandbox now instead of with its first operation."""
        return self._call(ops.START, Empty())

    def stop(self, signal: str = "SIGTERM") -> SandboxInfo:
        """Put the sandbox to sleep: processes end, files stay.

        Args:
            signal: what its processes are sent first; those that do not end are killed.
        """
        return self._call(ops.STOP, StopRequest(signal=signal))

    def destroy(self) -> None:
        """Remove the sandbox with all its files; nothing happens if there is none."""
        self._address.destroy()

    def info(self) -> SandboxInfo:
        """Return what the engine knows about the sandbox; starts nothing.

        Raises:
            SandboxNotFoundError: it was never created, or destroyed, and was got without options:
                those are sent first, which makes its record again.
        """
        return self._call(ops.INFO, Empty())

    def get_state(self) -> State:
        """Return the state in the words of 0.12 (stopped, starting, healthy, …); starts nothing."""
        info = self.info()
        return State(
            status=_shared.state_word(info),
            last_change=info.state_changed_at or info.started_at or info.created_at,
            exit_code=info.exit_code,
        )
