"""Sleep that keeps processes: the work of the transitions ``freeze`` and ``thaw``."""

from typing import TYPE_CHECKING

from atoll.engine.link import Endpoint
from atoll.errors import ResourceBusyError
from atoll.wire.sandbox import State

if TYPE_CHECKING:
    from atoll.engine.sandbox import Sandbox


async def freeze(box: "Sandbox", endpoint: Endpoint) -> None:
    """Freeze all processes; a freeze that fails is undone.

    Raises:
        ResourceBusyError: not all of them froze in time; they run on.
    """
    await box.carried.keep_changes(endpoint, lambda: True)
    # Recorded first: a frozen sandbox that is taken for a running one would look dead.
    await box.entry.save(state=State.FROZEN)
    try:
        await endpoint.runtime.pause(endpoint.host_ref)
    except BaseException as error:
        await thaw(box, endpoint)
        if isinstance(error, TimeoutError):
            raise ResourceBusyError(f"sandbox {box.id!r} could not be frozen") from error
        raise


async def thaw(box: "Sandbox", endpoint: Endpoint) -> None:
    """Let its processes run again."""
    await endpoint.runtime.resume(endpoint.host_ref)
    await box.entry.save(state=State.RUNNING)
    await box.apply(endpoint)
