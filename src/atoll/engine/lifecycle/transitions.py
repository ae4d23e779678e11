"""At most one transition of a sandbox at a time, shared by all who want it.

A transition is a task of its own: a caller who leaves does not take it away from the others, and
whoever wants something else waits for it and then looks again.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from atoll.errors import SandboxDestroyedError, SandboxError

log = structlog.get_logger(__name__)


class Transitions:
    """The transition under way, if there is one.

    Args:
        name: of the sandbox, for logs and errors.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._kind: str | None = None
        self._task: asyncio.Task[Any] | None = None

    @property
    def kind(self) -> str | None:
        """What is under way: start, freeze, thaw, stop or destroy; None: nothing."""
        return self._kind

    def begin(self, kind: str, work: Coroutine[Any, Any, None]) -> None:
        """Begin a transition; nothing else is under way."""
        if self._task is not None:
            work.close()
            raise AssertionError(f"{kind} during {self._kind}")
        self._kind = kind
        self._task = asyncio.create_task(work, name=f"{kind} {self._name}")
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._kind = self._task = None
        if not task.cancelled() and (error := task.exception()):
            unknown = None if isinstance(error, SandboxError) else error
            log.warning(
                "transition failed", task=task.get_name(), reason=str(error), exc_info=unknown
            )

    def cancel(self) -> None:
        """Give up the transition under way: the sandbox is to be destroyed."""
        if self._task:
            self._task.cancel()

    async def settled(self, joining: str | None = None) -> bool:
        """Wait for the transition under way, if there is one.

        Returns:
            True when it was of the kind *joining* and succeeded.

        Raises:
            SandboxError: it was of that kind and failed.
        """
        kind, task = self._kind, self._task
        if task is None:
            return False
        await asyncio.wait([task])
        if kind != joining:
            return False
        if task.cancelled():
            raise SandboxDestroyedError(f"sandbox {self._name!r} was destroyed during its {kind}")
        if error := task.exception():
            raise error
        return True
