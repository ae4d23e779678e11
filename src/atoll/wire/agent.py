"""The protocol between engine and agent: one connection per operation.

The engine connects, sends one HEADER frame (a JSON object) and, where the operation takes a
body, further frames. The agent answers with frames; REPLY, ERROR and EXITED end an operation.
A peer that only knows an older protocol fails the single operation it does not know.

The connection comes by a unix socket that has no name inside, or by TCP to the sandbox's address.
By TCP every HEADER carries `token`, the secret of this start (else ERROR UNAUTHORIZED), and no
descriptors travel: an exec with `log_limit` is answered NOT_SUPPORTED_BY_RUNTIME.

Operations (`op` of the header) and their frames, engine → agent ⇢ agent → engine:

=================  =========================================================================
``hello``          ⇢ REPLY `protocol, version, generation, pid`
``lease``          `until?` ⇢ REPLY `now, lease`: the agent's clock, and how long it goes on after what
                   it told; `until` is an earlier `now` and `lease`, and extends that
``exec``           [STDIN* STDIN_CLOSE] [SIGNAL RESIZE CANCEL]*
                   ⇢ STARTED (STDOUT | STDERR | GAP | HEARTBEAT)* (EXITED | ERROR).
                   An `id` the agent knows attaches to that operation instead of running again.
``attach``         `id, from_offset, quiet` ⇢ as exec, from that offset on; ERROR
                   OPERATION_NOT_FOUND
``control``        `id`, then (STDIN* | STDIN_CLOSE | SIGNAL | RESIZE | CANCEL) END
                   ⇢ REPLY once all of it was handed over
``operations``     ⇢ REPLY `operations: [{id, kind, session, pid, running, …}]`
``session.*``      create, delete, list, env, export, import ⇢ REPLY; see `SESSION_OPERATIONS`
``code.run``       `id, code, context, language, env, timeout, …` ⇢ as exec, with RESULT frames: JSON
                   lines of what is shown (`atoll.wire.interpreter`); an ERROR when the
                   interpreter died. ``attach`` and ``control`` (CANCEL) as for exec.
``code.*``         create, list, delete, interrupt, variables ⇢ REPLY
``fs.*``           see `atoll.agent.files.dispatch`; bodies as DATA* END in either direction
``port.connect``   `address, port, timeout?`, then DATA* END ⇢ REPLY DATA* END (or ERROR), both
                   ways at once: the bytes of a connection to a server inside, which the
                   network cannot carry to the engine. ERROR SERVICE_NOT_RESPONDING with
                   `reason`: refused, timeout, …
``shutdown``       `grace signal?` ⇢ REPLY; TERM (or `signal`) to every command, KILL after the grace
=================  =========================================================================

Rules that both sides rely on:

* CANCEL stands in the same stream as STDIN and is not seen before a command has taken what comes
  first; who wants to be sure cancels by ``control``.
* Whoever sent the last frame of an operation closes its sending side and reads on until the other
  side has closed: an answer is never lost because the peer was still writing. A peer that shuts
  down its sending side counts as gone.
* SIGNAL has `signal, tree, grace`: with a grace the tree is ended, KILL following that signal.
* Numbers `seq` are given to STARTED, STDOUT, STDERR, RESULT, GAP and EXITED, from 0.

Standard library only: this file is part of the agent.
"""

from typing import Final, TypedDict

PROTOCOL: Final = 1
"""Version spoken here. An engine speaks to agents of this and the last two minor versions."""

AGENT_PORT: Final = 49_151
"""Where an agent listens that is reached by an address on this machine: the last port before those
that a kernel gives out by itself."""

HELLO_TIMEOUT: Final = 30.0
"""Seconds an engine waits for the first hello of a starting sandbox."""

HEARTBEAT_INTERVAL: Final = 15.0
"""Seconds between HEARTBEAT frames of a silent operation (semantics.md "Commands" 7)."""

CONNECT_TIMEOUT: Final = 5.0
"""Seconds a server inside has to take a connection; loopback answers at once, a full queue never."""

ATTACH_GRACE: Final = 10.0
"""Seconds an operation with an id waits for its caller to attach again before it is cancelled."""

ORPHAN_GRACE: Final = 600.0
"""Seconds at most that an operation outlives an engine that is gone (DESIGN.md "exec")."""

REPLAY_WINDOW: Final = 4 << 20
"""Bytes of output an operation keeps for callers that attach again. More than all buffers
between agent and caller hold together, so a reattached stream has no gap while it is read."""

OUTPUT_LIMIT: Final = 32 << 20
"""Bytes per stream a buffered exec returns; further bytes are counted and dropped."""

MAX_RUNNING: Final = 256
"""Commands of a sandbox at once, unless its driver says fewer. Each has a supervisor of about 3 MB
in the agent's cgroup."""

KILL_GRACE: Final = 5.0
"""Seconds between TERM and KILL when a process tree is ended on request."""

TIMEOUT_GRACE: Final = 0.2
"""Seconds between TERM and KILL after a timeout or cancel: the caller waits (within 1 s)."""


DEFAULT_SESSION: Final = "default"
"""Made when it is first used; any other session has to be created."""

SESSION_OPERATIONS: Final = {
    "create": "id, name, env, cwd, user, isolation, command_timeout ⇢ SessionInfo",
    "delete": "id ⇢ {}, once nothing of the session is alive (or after KILL_GRACE + 1 s)",
    "list": "⇢ sessions: [SessionInfo]",
    "env": "session (None: the sandbox), env ⇢ {}",
    "export": "⇢ env, sessions: what `import` of a later start takes, unchanged",
    "import": "env, sessions ⇢ {}",
}
"""Request ⇢ REPLY; SessionInfo is the camel case struct of `atoll.wire.process`."""


class ExecHeader(TypedDict, total=False):
    """HEADER of ``exec``. Absent means the default given here."""

    op: str
    token: str  # of this start, where the agent is reached by TCP
    id: str  # operation id; required
    command: str | list[str]  # text for the shell, or argv without one
    session: str | None  # None: a fresh process without shell state
    turn: bool  # False: of a session it takes directory and variables only, as with `detach`
    env: dict[str, str | None]  # exact, None unsets; gone afterwards
    cwd: str | None  # relative to the session's cwd; default /workspace
    user: str | None  # name, uid or uid:gid; default the sandbox's
    timeout: float | None  # seconds; None: no limit
    stdin: bool  # True: STDIN frames follow; False: empty (default)
    pty: bool  # run on a pseudo terminal; stderr is part of stdout then
    cols: int
    rows: int
    output_limit: int | None  # bytes per stream; None: all of it (streams)
    from_offset: int  # where to go on when the id is known
    detach: bool  # a process: its connection may go without cancelling it; of a session it
    # takes directory and variables, and takes no turn in it
    cancel_on_drop: bool  # caller without an id of its own: cancel at once
    log_limit: int  # a descriptor came along: events go there too (`LOG_SEGMENT`)
    quiet: bool  # this connection is sent neither output nor gaps


class ExitRecord(TypedDict, total=False):
    """Payload of EXITED. Exactly one of `exit_code` and `signal` comes from wait status."""

    exit_code: int  # 128 + n for a signal, as shells report it
    signal: str | None  # "SIGKILL", …
    timed_out: bool
    cancelled: bool
    reason: str | None  # why it was ended: timeout, cancel, kill, session, shutdown, agent (gone)
    oom_killed: bool
    pids_limited: bool  # forks were refused for the limit of processes while it ran
    session_ended: bool  # the command ended its session's shell
    state_saved: bool  # False: shell state is as it was before
    stdout_bytes: int
    stderr_bytes: int  # true counts, also where output was cut
    truncated: bool
    duration: float  # seconds
    seq: int
    offset: int


LOG_SEGMENT: Final = 1 << 20
"""A log holds frames as they would be sent, STARTED to EXITED or ERROR. None crosses a multiple of
this many bytes; kind 0 means that the rest of the segment is empty, or that all of it was given
back. A GAP stands for what could not be written."""


def log_position(end: int, length: int) -> int:
    """Return where a frame of *length* bytes goes in a log whose last frame ends at *end*."""
    return end if end % LOG_SEGMENT + length <= LOG_SEGMENT else end + -end % LOG_SEGMENT


SHUTDOWN_GRACE: Final = 2.0
"""Seconds between TERM and KILL of everything when the sandbox stops."""
