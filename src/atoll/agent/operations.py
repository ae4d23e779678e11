"""What the router knows of every operation, running or ended.

An operation's id is its identity: asked for again it is attached to, never run twice. Ended ones
are kept so that a caller whose connection broke still gets the outcome: the outcome for
`KEEP` seconds and `KEEP_COUNT` operations, the output for `KEEP_OUTPUT` seconds and as long as all
of it together stays below `KEEP_BYTES`. Pure: the clock is given, files are closed by *release*.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from atoll import errors

KEEP: Final = 600.0
KEEP_COUNT: Final = 10_000
KEEP_OUTPUT: Final = 60.0
KEEP_BYTES: Final = 64 << 20


class Operation:
    """One exec; `session`, `supervisor` (None once it has left) and `deadline` are opaque here."""

    __slots__ = (
        "deadline", "detach", "ended", "fingerprint", "id", "last", "limit", "overdue", "pid",
        "session", "size", "supervisor", "tail", "tail_fd",
    )  # fmt: skip

    def __init__(self, id: str, session: Any, fingerprint: int) -> None:
        self.id, self.session, self.fingerprint = id, session, fingerprint
        self.pid: int | None = None
        self.detach = False
        self.supervisor: Any = None
        self.limit: float | None = None  # seconds it may take from its turn on
        self.deadline: Any = None  # what ends its supervisor after that
        self.overdue = False  # and did so
        self.ended: float | None = None
        self.last = b""  # the frame that ended it
        self.tail = b""  # kept output, as frames
        self.tail_fd: int | None = None  # the same in a memory file, when it is large
        self.size = 0

    def describe(self) -> dict[str, Any]:
        """Return the entry in the answer to ``operations``."""
        return {
            "id": self.id,
            "kind": "exec",
            "session": self.session and self.session.id,
            "pid": self.pid,
            "running": self.ended is None,
            "detach": self.detach,
        }


class Operations:
    """All operations by id, with the limits of what is kept."""

    def __init__(self, release: Callable[[int], None]) -> None:
        self._release = release
        self._all: dict[str, Operation] = {}
        self._ended: deque[Operation] = deque()
        self._with_output: deque[Operation] = deque()
        self._bytes = 0

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._all.values())

    def get(self, id: str) -> Operation | None:
        """Return the operation with this id, if it is known."""
        return self._all.get(id)

    def add(self, operation: Operation) -> None:
        """Remember an operation that begins."""
        self._all[operation.id] = operation

    def end(self, operation: Operation, now: float) -> None:
        """Note that *operation* has ended; its last frame and tail are set."""
        operation.ended = now
        if operation.deadline:
            operation.deadline.cancel()
        self._ended.append(operation)
        self._with_output.append(operation)
        self._bytes += operation.size
        self.expire(now)

    def expire(self, now: float) -> None:
        """Forget what is kept no longer."""
        outputs, ended = self._with_output, self._ended
        while outputs and (self._bytes > KEEP_BYTES or _age(outputs[0], now) > KEEP_OUTPUT):
            self._drop_output(outputs.popleft())
        while ended and (len(ended) > KEEP_COUNT or _age(ended[0], now) > KEEP):
            del self._all[ended.popleft().id]

    def _drop_output(self, operation: Operation) -> None:
        self._bytes -= operation.size
        operation.size, operation.tail = 0, b""
        if operation.tail_fd is not None:
            self._release(operation.tail_fd)
            operation.tail_fd = None


def check_id(id: object) -> str:
    """Return *id* if it may name an operation.

    Raises:
        ValidationFailedError: it is not text of 1 to 200 characters.
    """
    if not isinstance(id, str) or not 1 <= len(id) <= 200:
        raise errors.ValidationFailedError(
            "an operation needs an id of 1 to 200 characters", context={"field": "id"}
        )
    return id


def _age(operation: Operation, now: float) -> float:
    return 0.0 if operation.ended is None else now - operation.ended
