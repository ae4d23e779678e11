"""Secrets of a namespace: kept by the engine, used by its sandboxes, read by nobody."""

from collections.abc import Sequence

import msgspec

from atoll.errors import ValidationFailedError
from atoll.sdk import _arguments
from atoll.sdk._sync.transport import Transport
from atoll.wire import ops
from atoll.wire.base import Empty
from atoll.wire.secrets import PutSecret, SecretInfo


class Secrets:
    """The secrets of one namespace."""

    def __init__(self, transport: Transport, namespace: str) -> None:
        self._transport = transport
        self._namespace = namespace

    def put(self, name: str, value: str, *, hosts: Sequence[str] = ()) -> SecretInfo:
        """Keep *value* under *name*, also for sandboxes that run.

        Args:
            name: letters, digits, ``_``, ``-`` and ``.``.
            value: at most 65,536 characters.
            hosts: patterns of those that any sandbox may be given it for; empty: whichever its
                options name.

        Raises:
            ValidationFailedError: the name, the value or a host cannot be one.
            ForbiddenError: the own key is not one of an administrator.
        """
        try:
            wanted = msgspec.convert(
                {"value": value, "hosts": _arguments.listed("hosts", hosts)}, PutSecret
            )
        except msgspec.ValidationError as error:  # which does not show the value
            raise ValidationFailedError(f"secret: {error}", context={"field": name}) from None
        return self._transport.call(ops.PUT_SECRET, self._params(name), wanted)

    def list(self) -> list[SecretInfo]:
        """Return the names of all secrets; their values are nowhere."""
        found = self._transport.call(ops.LIST_SECRETS, {"namespace": self._namespace}, Empty())
        return found.secrets

    def delete(self, name: str) -> None:
        """Forget a secret: requests that need it are refused from now on.

        Raises:
            SecretNotFoundError: there is none of this name.
        """
        self._transport.call(ops.DELETE_SECRET, self._params(name), Empty())

    def _params(self, name: str) -> dict[str, str]:
        return {"namespace": self._namespace, "secret": name}
