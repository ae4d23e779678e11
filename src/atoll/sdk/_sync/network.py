"""What a sandbox may reach: lists of hosts, handlers in the Worker, and the log of decisions."""

from collections.abc import Iterable, Mapping
from typing import Any

from atoll.sdk import _arguments
from atoll.sdk._sync.closable import ClosableStream
from atoll.sdk._sync.events import followed
from atoll.sdk._sync.target import Address, Target
from atoll.wire import ops
from atoll.wire.base import Empty
from atoll.wire.egress import (
    ChangeNetwork,
    NetworkEvent,
    NetworkLogQuery,
    NetworkPolicy,
    OutboundHandler,
)


class Network(Target):
    """Part of `Sandbox`.

    A host is a name (`*` stands for any characters of one), an address, or a range in CIDR notation.
    Changes hold at once, also for open connections, and over sleeps and restarts. They need no
    running sandbox and start none.
    """

    def set_allowed_hosts(self, hosts: Iterable[str] | None) -> NetworkPolicy:
        """Let it reach these hosts only, also where `enable_internet` is off.

        Args:
            hosts: replaces the list; empty: there is none; None: that of its class again.

        Raises:
            ValidationFailedError: one of them is no host.
            NotSupportedByRuntimeError: its isolation level has no egress gateway.
        """
        return self._change(ChangeNetwork(allowed_hosts=_arguments.hosts(hosts)))

    def set_denied_hosts(self, hosts: Iterable[str] | None) -> NetworkPolicy:
        """Keep it from these hosts, whatever else allows them; arguments as `set_allowed_hosts`."""
        return self._change(ChangeNetwork(denied_hosts=_arguments.hosts(hosts)))

    def allow_host(self, host: str) -> NetworkPolicy:
        """Add to its list of allowed hosts. With the first one, only those in it are reached."""
        return self._change(ChangeNetwork(allow=[host]))

    def remove_allowed_host(self, host: str) -> NetworkPolicy:
        """Take out of its list of allowed hosts. When it is empty there is no such list any more."""
        return self._change(ChangeNetwork(disallow=[host]))

    def deny_host(self, host: str) -> NetworkPolicy:
        """Add to its list of denied hosts."""
        return self._change(ChangeNetwork(deny=[host]))

    def remove_denied_host(self, host: str) -> NetworkPolicy:
        """Take out of its list of denied hosts."""
        return self._change(ChangeNetwork(undeny=[host]))

    def set_outbound_handler(self, name: str | None, params: Any = None) -> NetworkPolicy:
        """Have a handler of its class answer all requests that no handler of a host answers.

        Args:
            name: key in `outbound_handlers`; None: the class's own `outbound` again.
            params: what the handler finds in its context, any JSON.

        Raises:
            ValidationFailedError: the class has no such handler.
        """
        handler = None if name is None else OutboundHandler(name=name, params=params)
        return self._change(ChangeNetwork(outbound=handler))

    def set_outbound_by_host(self, host: str, name: str, params: Any = None) -> NetworkPolicy:
        """Have a handler answer requests to a host; raise as `set_outbound_handler`."""
        if not isinstance(host, str):
            raise _arguments.wrong("host", "text", host)
        handler = OutboundHandler(name=name, params=params)
        return self._change(ChangeNetwork(handle={host: handler}))

    def set_outbound_by_hosts(
        self, handlers: Mapping[str, str | Mapping[str, Any]]
    ) -> NetworkPolicy:
        """Replace all its handlers by host.

        Args:
            handlers: host → key in `outbound_handlers`, or ``{"name": key, "params": …}``.

        Raises:
            ValidationFailedError: the class has no such handler.
        """
        if not isinstance(handlers, Mapping):
            raise _arguments.wrong("handlers", "a mapping of hosts to names", handlers)
        given = {host: _arguments.outbound_handler(handler) for host, handler in handlers.items()}
        return self._change(ChangeNetwork(outbound_by_host=given))

    def remove_outbound_by_host(self, host: str) -> NetworkPolicy:
        """Take away its own handler of a host; one of its class for that host answers again."""
        return self._change(ChangeNetwork(unhandle=[host]))

    def network_policy(self) -> NetworkPolicy:
        """Return what it may reach.

        Raises:
            SandboxNotFoundError: it was never created, or destroyed, and was got without options:
                those are sent first, which makes its record again.
        """
        return self._call(ops.GET_NETWORK, Empty())

    def network_log(self, *, follow: bool = False, after: str = "") -> "NetworkLog":
        """Return every decision about a name, connection or request, the oldest first.

        The last 8 MB of lines are kept, also while it sleeps, and go when it is destroyed.

        Args:
            follow: go on with what is decided.
            after: only what comes after the event with this `cursor`.
        """
        return NetworkLog(self._address, NetworkLogQuery(after=after, follow=follow))

    def _change(self, change: ChangeNetwork) -> NetworkPolicy:
        return self._call(ops.CHANGE_NETWORK, change)


class NetworkLog(ClosableStream[NetworkEvent]):
    """An iterator of `NetworkEvent`. Reading it wakes nothing."""

    def __init__(self, address: Address, request: NetworkLogQuery) -> None:
        super().__init__(followed(address, ops.NETWORK_LOG, request, lambda event: event.cursor))
