"""Why a use of a sandbox failed, in terms of what happened to it, or to the store of its files."""

from typing import TYPE_CHECKING, Final

from atoll.engine.link import losses
from atoll.engine.link.link import Endpoint, HungUpError, LinkError
from atoll.errors import FilesystemError, ReadOnlyError, SandboxError
from atoll.storage import refusals

if TYPE_CHECKING:
    from atoll.engine.sandbox import Sandbox

OF_FILES: Final = (ReadOnlyError, FilesystemError)
"""What the kernel refuses on a store that shut itself, as the agent tells it."""


async def explained(box: "Sandbox", endpoint: Endpoint | None, error: LinkError) -> SandboxError:
    """Return why a connection to the agent broke."""
    generation = endpoint.generation if endpoint else None
    frozen = isinstance(error, HungUpError)
    transition = box.transition
    if known := losses.known(box.id, box.record, transition, generation, str(error), frozen=frozen):
        return known
    gone = endpoint is not None and await box.check_alive(endpoint)
    return losses.unknown(box.id, str(error), gone=gone)


async def check_store(box: "Sandbox", error: ReadOnlyError | FilesystemError) -> None:
    """Refuse what failed since the store of all files shut itself: it may be tried again.

    Raises:
        ContainerUnavailableError: that is why; read-only mounts and others' disks are not.
    """
    if await box.shared.lifecycle.parts.layers.has_failed():
        raise refusals.shut() from error
