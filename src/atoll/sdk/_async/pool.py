"""The engine's warm pool."""

from atoll.sdk._async.transport import Transport
from atoll.wire import ops
from atoll.wire.base import Empty
from atoll.wire.pool import PoolStats, Prime


class Pool:
    """Containers kept ready for sandboxes that are made later."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def stats(self) -> PoolStats:
        """Return what there is, and what is wanted."""
        return await self._transport.call(ops.POOL_STATS, {}, Empty())

    async def prime(
        self,
        *,
        target: int | None = None,
        image: str | None = None,
        instance_type: str | None = None,
    ) -> PoolStats:
        """Fill the pool and wait for it.

        Args:
            target: how many of this image and instance type, until the engine ends; None: as many
                as are set.
            image: default: the engine's default image.
            instance_type: default: the engine's default one.
        """
        request = Prime(target=target, image=image, instance_type=instance_type)
        return await self._transport.call(ops.PRIME_POOL, {}, request)

    async def shutdown(self) -> PoolStats:
        """Remove all that is warm; nothing is made until `prime`."""
        return await self._transport.call(ops.SHUTDOWN_POOL, {}, Empty())
