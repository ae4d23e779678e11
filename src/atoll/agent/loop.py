"""Readiness and timers on one thread, over epoll.

Not `selectors`: the agent needs EPOLLRDHUP and descriptors that wait for hang-up only. A handler
that raises is reported and the loop goes on: pid 1 must outlive every mistake in it.
"""

import heapq
import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Final

READ: Final = select.EPOLLIN
WRITE: Final = select.EPOLLOUT
GONE: Final = select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP

Handler = Callable[[int], None]


class Timer:
    """A callback that is due at a point of the monotonic clock."""

    __slots__ = ("callback", "due")

    def __init__(self, due: float, callback: Callable[[], None]) -> None:
        self.due = due
        self.callback: Callable[[], None] | None = callback

    def __lt__(self, other: "Timer") -> bool:
        return self.due < other.due

    def cancel(self) -> None:
        """Forget the callback; doing it twice or after it ran is no mistake."""
        self.callback = None


class Loop:
    """Watches descriptors, runs timers, tells of ended children."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._masks: dict[int, int] = {}
        self._timers: list[Timer] = []
        self._soon: deque[Callable[[], None]] = deque()
        self._pipe: tuple[int, ...] = ()
        self.stopped = False

    def watch(self, fd: int, mask: int, handler: Handler) -> None:
        """Call *handler* with the ready events of *fd*; hang-up is always among them."""
        if fd not in self._handlers:
            self._epoll.register(fd, mask)
        elif self._masks[fd] != mask:
            self._epoll.modify(fd, mask)
        self._handlers[fd], self._masks[fd] = handler, mask

    def forget(self, fd: int) -> None:
        """Stop watching *fd*. To be called before it is closed."""
        if self._handlers.pop(fd, None):
            del self._masks[fd]
            self._epoll.unregister(fd)

    def later(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Call *callback* once, *delay* seconds from now."""
        timer = Timer(time.monotonic() + delay, callback)
        heapq.heappush(self._timers, timer)
        return timer

    def soon(self, callback: Callable[[], None]) -> None:
        """Call *callback* when the events of this round are handled."""
        self._soon.append(callback)

    def on_child(self, callback: Callable[[], None]) -> None:
        """Call *callback* after SIGCHLD, from the loop and not from the signal handler."""
        self._pipe = reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

        def wake(_: int) -> None:
            os.read(reader, 4096)
            callback()

        self.watch(reader, READ, wake)

    def close(self) -> None:
        """Give up a loop that is not run any more; what it watched stays open."""
        if self._pipe:
            signal.set_wakeup_fd(-1)
        for fd in self._pipe:
            os.close(fd)
        self._epoll.close()

    def stop(self) -> None:
        """Let `run` return."""
        self.stopped = True

    def run(self) -> None:
        """Run until `stopped`."""
        while not self.stopped:
            self.step()

    def step(self) -> None:
        """Wait for the next events or timer and handle them."""
        for fd, events in self._epoll.poll(self._delay()):
            if handler := self._handlers.get(fd):
                _guarded(handler, events)
        now = time.monotonic()
        while self._timers and self._timers[0].due <= now:
            if callback := heapq.heappop(self._timers).callback:
                _guarded(callback)
        for _ in range(len(self._soon)):
            _guarded(self._soon.popleft())

    def _delay(self) -> float | None:
        if self._soon:
            return 0.0
        while self._timers and self._timers[0].callback is None:
            heapq.heappop(self._timers)
        return max(0.0, self._timers[0].due - time.monotonic()) if self._timers else None


def _guarded(callback: Callable[..., None], *args: int) -> None:
    try:
        callback(*args)
    except Exception:
        sys.excepthook(*sys.exc_info())
