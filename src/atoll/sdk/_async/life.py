"""The life of a sandbox: sleep and wake, its timers, what it uses and what happens to it."""

from collections.abc import Mapping

from atoll.sdk import _arguments
from atoll.sdk._async.events import EventStream
from atoll.sdk._async.target import Target
from atoll.wire import ops
from atoll.wire.base import Duration, Empty
from atoll.wire.sandbox import EventsQuery, Metrics, SandboxInfo, SandboxOptions


class Life(Target):
    """Part of `Sandbox`."""

    async def sleep(self) -> SandboxInfo:
        """Put it to sleep now, as its `sleep_mode` says, whatever it does. The next call wakes it."""
        return await self._call(ops.SLEEP, Empty())

    async def wake(self) -> SandboxInfo:
        """Create or wake it now instead of with its next operation."""
        return await self._call(ops.START, Empty())

    async def renew_activity_timeout(self) -> None:
        """Have its idle time begin anew. One that sleeps goes on sleeping.

        Raises:
            SandboxNotFoundError: it was never created, or destroyed.
        """
        await self._call(ops.RENEW, Empty())

    async def set_sleep_after(self, duration: Duration) -> None:
        """Set the idle time before it sleeps, from now on."""
        await self._set(_arguments.sandbox_options(sleep_after=duration))

    async def set_keep_alive(self, keep_alive: bool) -> None:  # as in 0.12
        """Set whether it never sleeps by itself, from now on."""
        await self._set(_arguments.sandbox_options(keep_alive=keep_alive))

    async def set_labels(self, labels: Mapping[str, str]) -> None:
        """Replace its labels."""
        await self._set(_arguments.sandbox_options(labels=labels))

    async def _set(self, options: SandboxOptions | None) -> None:
        if options is not None:
            await self._call(ops.ENSURE, options)

    async def metrics(self) -> Metrics:
        """Return what it uses now. Wakes nothing.

        Raises:
            SandboxNotFoundError: it was never created, or destroyed.
        """
        return await self._call(ops.METRICS, Empty())

    def events(self, *, follow: bool = False, after: int = 0) -> EventStream:
        """Return what happened to it, the oldest event first; the last 200 are kept.

        Args:
            follow: go on with what happens, also when it does not exist yet.
            after: only events whose `seq` is above this.
        """
        return EventStream(self._address, EventsQuery(after=after, follow=follow))

    async def get_container_placement_id(self) -> str | None:
        """Return a name of its present start, a different one after every sleep; None: it sleeps."""
        return (await self._call(ops.INFO, Empty())).placement_id
