"""What a sandbox class of a Worker may say: attributes, and methods that the engine calls.

Everywhere else these are never looked at.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from atoll.sdk._secret import Secret
from atoll.wire.base import Duration


class Hooks:
    """Class attributes and hooks, all of them optional.

    Attributes:
        default_port: port of the service inside.
        required_ports: ports that must answer before the sandbox is used.
        sleep_after: idle time before it sleeps.
        env_vars: start environment; a value may be a `secret`.
        entrypoint: command that runs from each start on, in place of the image's.
        enable_internet: whether it reaches the internet.
        intercept_https: whether handlers see the inside of HTTPS.
        allowed_hosts: the only hosts it may reach.
        denied_hosts: hosts it may not reach.
        outbound: handler of its requests to anywhere.
        outbound_by_host: handlers by host.
        outbound_handlers: handlers by name, for `set_outbound_handler`.
        labels: for `Namespace.list`.
        ctx: of an object in a Worker: its id, storage, and what goes on after an answer.
        env: the Worker's bindings, variables and secrets.
    """

    default_port: ClassVar[int | None] = None
    required_ports: ClassVar[Sequence[int]] = ()
    sleep_after: ClassVar[Duration | None] = None
    env_vars: ClassVar[Mapping[str, str | Secret]] = {}
    entrypoint: ClassVar[str | Sequence[str] | None] = None
    enable_internet: ClassVar[bool | None] = None
    intercept_https: ClassVar[bool] = False
    allowed_hosts: ClassVar[Sequence[str] | None] = None
    denied_hosts: ClassVar[Sequence[str] | None] = None
    outbound: ClassVar[Any] = None
    outbound_by_host: ClassVar[Mapping[str, Any] | None] = None
    outbound_handlers: ClassVar[Mapping[str, Any] | None] = None
    labels: ClassVar[Mapping[str, str]] = {}

    ctx: Any
    env: Any

    async def on_start(self) -> None:
        """Called when the sandbox has started or woken; whoever uses it waits until this ends."""

    async def on_stop(self, *args: Any, **kwargs: Any) -> None:
        """Called after the sandbox has stopped, with a dict: `exit_code` and `reason`."""

    async def on_error(self, *args: Any, **kwargs: Any) -> None:
        """Called with an error that no caller hears of: of a start, a hook, a timer."""
