"""Who may call an engine, and the record of who did. For its administrators."""

from atoll.errors import ValidationFailedError
from atoll.sdk import _arguments
from atoll.sdk._async.transport import Transport
from atoll.wire import ids, ops
from atoll.wire.base import Duration, Empty
from atoll.wire.keys import CreatedKey, CreateKey, KeyInfo, Scope


class Keys:
    """The API keys of one engine."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(
        self,
        name: str,
        *,
        scope: str = "run",
        namespace: str | None = None,
        expires_in: Duration | None = None,
        rate: float | None = None,
        concurrency: int | None = None,
    ) -> CreatedKey:
        """Make a key. Its text is in this answer and never anywhere again.

        Args:
            name: for people.
            scope: "read", "run" or "admin"; each allows what those before it do.
            namespace: the only one the key is for; None: all of them, and the engine itself.
            expires_in: time after which it is refused; None: never.
            rate: requests a second; None: as the engine's settings say.
            concurrency: requests at once; None: as the engine's settings say.

        Raises:
            ValidationFailedError: a field is malformed.
            ForbiddenError: the own key is not one of an administrator.
        """
        wanted = CreateKey(
            name=name,
            scope=_scope(scope),
            namespace=ids.check_namespace(namespace) if namespace is not None else None,
            expires_in_ms=_arguments.milliseconds("expires_in", expires_in),
            rate=rate,
            concurrency=concurrency,
        )
        return await self._transport.call(ops.CREATE_KEY, {}, wanted)

    async def list(self) -> list[KeyInfo]:
        """Return all keys, the oldest first, without their texts."""
        return (await self._transport.call(ops.LIST_KEYS, {}, Empty())).keys

    async def revoke(self, id: str) -> None:
        """Refuse a key from now on, and end what it has under way.

        Args:
            id: `KeyInfo.id`.

        Raises:
            KeyNotFoundError: there is no such key.
        """
        await self._transport.call(ops.REVOKE_KEY, {"key": id}, Empty())


def _scope(name: str) -> Scope:
    try:
        return Scope(name)
    except ValueError as error:
        raise ValidationFailedError(
            f"{name!r} is not a scope", context={"field": "scope"},
            suggestion=f"use one of {', '.join(Scope)}",
        ) from error  # fmt: skip
