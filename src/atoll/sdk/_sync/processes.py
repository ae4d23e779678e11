"""Background processes of a sandbox or session: they outlive connections and engines."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from atoll.errors import ProcessNotFoundError, SandboxError
from atoll.sdk import _io, _arguments
from atoll.sdk._sync import background
from atoll.sdk._sync.background import Process
from atoll.sdk._sync.commands import Command, OnOutput
from atoll.sdk._sync.logs import LogStream
from atoll.sdk._sync.target import Target
from atoll.wire import ids, ops
from atoll.wire.base import Duration, Empty
from atoll.wire.process import (
    KillAll,
    KillProcess,
    LogsQuery,
    ProcessLogs,
    ProcessQuery,
    StartProcessRequest,
)

OnExit: TypeAlias = Callable[[int | None], object]


class Processes(Target):
    """Background processes."""

    def start_process(
        self,
        command: Command,
        *,
        process_id: str | None = None,
        auto_cleanup: bool = True,
        restart: bool = False,
        keep_awake: bool = False,
        timeout: Duration | None = None,
        env: Mapping[str, str | None] | None = None,
        cwd: str | None = None,
        user: str | int | None = None,
        session: str | None = None,
        on_start: Callable[[Process], object] | None = None,
        on_output: OnOutput | None = None,
        on_exit: OnExit | None = None,
        on_error: Callable[[SandboxError], object] | None = None,
    ) -> Process:
        """Start a process in the background and return as soon as it runs.

        Args:
            command: text for a shell of its own, or a list of arguments that is run without one.
            process_id: its id; a random one when not given.
            auto_cleanup: forget it and its log one hour after its end; False: only
                `cleanup_completed_processes` does.
            restart: start it again when the sandbox wakes.
            keep_awake: the sandbox does not sleep while it runs.
            timeout: seconds until the whole process tree is killed; None: no limit.
            env: variables of this process; None as a value unsets one.
            cwd: working directory; relative paths start at the session's.
            user: name, uid or "uid:gid"; the sandbox's user when not given.
            session: id of the session it starts in and ends with.
            on_start: called with the process.
            on_output: called with "stdout" or "stderr" and text, as it arrives.
            on_exit: called with the exit code (None: not known).
            on_error: called with the error that is raised, or that ended the callbacks.

        Raises:
            ProcessAlreadyExistsError: a running process has the id.
            SandboxError: it could not be started.
        """
        _arguments.callbacks(
            on_start=on_start, on_output=on_output, on_exit=on_exit, on_error=on_error
        )
        request = StartProcessRequest(
            command=_arguments.check_command(command),
            process_id=process_id,
            timeout_ms=_arguments.time_limit(timeout),
            env=_arguments.mapping("env", env),
            cwd=cwd,
            user=_arguments.user(user),
            session=self._session if session is None else ids.check_session(session),
            auto_cleanup=auto_cleanup,
            restart=restart,
            keep_awake=keep_awake,
        )
        try:
            info = background.call(self._address, ops.START_PROCESS, request)
        except SandboxError as error:
            _io.call(on_error, error)
            raise
        process = Process(self._address, info)
        _io.call(on_start, process)
        if on_output or on_exit:
            process.follow(on_output, on_exit, on_error)
        return process

    def list_processes(self) -> list[Process]:
        """Return all processes, in the order they were started. Wakes nothing."""
        found = background.call(self._address, ops.LIST_PROCESSES, Empty())
        return [Process(self._address, info) for info in found.processes]

    def get_process(self, process_id: str) -> Process | None:
        """Return the process an id names, or None. Wakes nothing."""
        try:
            info = background.call(
                self._address, ops.GET_PROCESS, ProcessQuery(), process=process_id
            )
        except ProcessNotFoundError:
            return None
        return Process(self._address, info)

    def kill_process(self, process_id: str, signal: str = "SIGTERM") -> None:
        """End a process and everything it started: *signal*, 5 s, SIGKILL.

        Nothing happens to one that has ended.

        Raises:
            ProcessNotFoundError: there is none with this id.
        """
        request = KillProcess(signal=signal)
        background.call(self._address, ops.KILL_PROCESS, request, process=process_id)

    def stop_process(self, process_id: str, signal: str = "SIGTERM") -> None:
        """Do the same as `kill_process`."""
        self.kill_process(process_id, signal)

    def kill_all_processes(self, signal: str = "SIGTERM") -> int:
        """End all processes; return how many ran."""
        request = KillAll(signal=signal)
        return (background.call(self._address, ops.KILL_ALL_PROCESSES, request)).count

    def cleanup_completed_processes(self) -> int:
        """Forget all processes that have ended, with their logs; return how many."""
        return (background.call(self._address, ops.CLEANUP_PROCESSES, Empty())).count

    def get_process_logs(self, process_id: str) -> ProcessLogs:
        """Return all output that is kept, also after its end and while the sandbox sleeps.

        Raises:
            ProcessNotFoundError: there is none with this id.
        """
        stream = self.stream_process_logs(process_id, follow=False)
        return background.collect(stream, process_id)

    def stream_process_logs(
        self, process_id: str, *, from_offset: int = 0, follow: bool = True
    ) -> LogStream:
        """Return the output from an offset on.

        Args:
            process_id: of a process, running or not.
            from_offset: `offset` of an earlier stream: nothing is repeated, and what is no longer
                kept is a `Gap`.
            follow: go on until the process ends; False: until what there is now.
        """
        query = LogsQuery(from_offset=from_offset, follow=follow)
        return LogStream(self._address, process_id, query)
