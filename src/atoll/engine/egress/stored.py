"""What a record keeps of a sandbox's own policy, and how a change of it is applied. Pure."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET

from atoll.errors import ValidationFailedError
from atoll.network import hosts
from atoll.network.gateway.protocol import Authority
from atoll.wire.egress import ChangeNetwork, EgressDefaults, OutboundHandler

MAX_HOSTS = 1_000
"""Patterns of one list: each is compared with each connection."""

MAX_PARAMS = 64 << 10
"""Bytes of what is given to one handler."""


class Egress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sandbox's own policy; None: the class's list. Patterns are in their one form."""

    allowed: tuple[str, ...] | None = None
    denied: tuple[str, ...] | None = None
    by_host: dict[str, OutboundHandler] = {}
    handler: OutboundHandler | None = None
    authority: Authority | None = None
    placeholders: dict[str, str] = {}
    """Variable → what stands in it for a secret."""

    def fresh(self) -> "Egress":
        """Return what a copy of the sandbox begins with: nothing that proves who it is."""
        return msgspec.structs.replace(self, authority=None, placeholders={})


def changed(old: Egress, change: ChangeNetwork, defaults: EgressDefaults) -> Egress:
    """Return *old* after *change*.

    Args:
        defaults: of the class: lists begin as its ones, handlers are among its ones.

    Raises:
        ValidationFailedError: a pattern is none, there are too many, or the class has no such
            handler.
    """
    by_host = old.by_host if change.outbound_by_host is UNSET else _keyed(change.outbound_by_host)
    gone = set(_patterns(change.unhandle))
    by_host = {host: h for host, h in (by_host | _keyed(change.handle)).items() if host not in gone}
    handler = old.handler if change.outbound is UNSET else change.outbound
    for chosen in (handler, *by_host.values()):
        _check_handler(chosen, defaults)
    _check_number("outbound_by_host", by_host)
    allowed = old.allowed if change.allowed_hosts is UNSET else _given(change.allowed_hosts)
    denied = old.denied if change.denied_hosts is UNSET else _given(change.denied_hosts)
    return msgspec.structs.replace(
        old,
        allowed=_edited(allowed, defaults.allowed_hosts, change.allow, change.disallow),
        denied=_edited(denied, defaults.denied_hosts, change.deny, change.undeny),
        by_host=by_host,
        handler=handler,
    )


def check_defaults(defaults: EgressDefaults) -> None:
    """Refuse what a class or namespace says that cannot be meant; raise as `changed`."""
    for listed in (defaults.allowed_hosts, defaults.denied_hosts, defaults.outbound_by_host):
        _check_number("hosts", _patterns(listed))


def check_patterns(patterns: Iterable[str]) -> None:
    """Refuse what is no host; raise as `changed`."""
    _patterns(patterns)


def _edited(
    own: tuple[str, ...] | None, inherited: list[str], more: list[str], fewer: list[str]
) -> tuple[str, ...] | None:
    if not more and not fewer:
        return own
    before = _patterns(inherited) if own is None else own
    gone = set(_patterns(fewer))
    found = tuple(p for p in dict.fromkeys((*before, *_patterns(more))) if p not in gone)
    if own is None and found == before:
        return None  # nothing changed: what the class says later holds too
    _check_number("hosts", found)
    return found


def _given(patterns: list[str] | None) -> tuple[str, ...] | None:
    if patterns is None:
        return None
    found = _patterns(patterns)
    _check_number("hosts", found)
    return found


def _patterns(patterns: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(hosts.canonical_pattern, patterns)))


def _keyed(handlers: dict[str, OutboundHandler]) -> dict[str, OutboundHandler]:
    return {hosts.canonical_pattern(host): handler for host, handler in handlers.items()}


def _check_number(field: str, found: Any) -> None:
    if len(found) > MAX_HOSTS:
        raise ValidationFailedError(
            f"{len(found)} hosts are more than {MAX_HOSTS}",
            context={"field": field, "limit": MAX_HOSTS},
            suggestion="use patterns like *.example.com, or ranges like 203.0.113.0/24",
        )


def _check_handler(handler: OutboundHandler | None, defaults: EgressDefaults) -> None:
    if handler is None:
        return
    if handler.name not in defaults.outbound_handlers:
        known = ", ".join(defaults.outbound_handlers) or "none"
        raise ValidationFailedError(
            f"the sandbox's class has no outbound handler {handler.name[:100]!r}",
            context={"handler": handler.name[:300]},
            suggestion=f"its outbound_handlers are: {known}",
        )
    if len(msgspec.json.encode(handler.params)) > MAX_PARAMS:
        raise ValidationFailedError(
            f"the parameters of a handler have at most {MAX_PARAMS} bytes",
            context={"handler": handler.name, "limit": MAX_PARAMS},
        )
