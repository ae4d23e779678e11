"""The policy that results for one sandbox: its own, its class's, the node's. Pure."""

import msgspec

from atoll.engine.egress.stored import Egress
from atoll.network import hosts
from atoll.network.filter import Mode
from atoll.network.policy import Handler, SandboxPolicy, Secret
from atoll.network_settings import NetworkSettings
from atoll.wire.egress import EgressDefaults, NetworkPolicy, OutboundHandler

_NAMES: dict[Mode, str] = {"closed": "closed", "direct": "direct", "gated": "gateway"}


def policy(
    key: tuple[str, str],
    own: Egress,
    defaults: EgressDefaults,
    settings: NetworkSettings,
    *,
    internet: bool,
    secrets: tuple[Secret, ...] = (),
) -> SandboxPolicy:
    """Return what holds for a sandbox, wherever it runs.

    Args:
        key: namespace and id.
        own: what its record keeps.
        defaults: of its class or namespace.
        settings: of the node.
        internet: `enable_internet` with all defaults.
        secrets: with their values.
    """
    inherited = {
        pattern: Handler("outbound_by_host", pattern, function=defaults.functions.get(pattern, ""))
        for pattern in defaults.outbound_by_host
    }
    return SandboxPolicy(
        key="/".join(key),
        host_ref="",
        addresses=(),
        internet=internet,
        allowed=_list(own.allowed, defaults.allowed_hosts),
        denied=_list(own.denied, defaults.denied_hosts),
        opened=settings.private_ranges,
        closed=(settings.cidr, settings.cidr6),
        intercept=defaults.intercept_https,
        bypass=_list(settings.tls_bypass, []),
        runtime_by_host={host: _chosen(handler) for host, handler in own.by_host.items()},
        class_by_host={hosts.canonical_pattern(host): h for host, h in inherited.items()},
        runtime_all=_chosen(own.handler) if own.handler else None,
        class_all=Handler("outbound", function=defaults.function) if defaults.outbound else None,
        secrets=secrets,
        max_connections=settings.max_connections,
    )


def placed(found: SandboxPolicy, host_ref: str, addresses: tuple[str, ...]) -> SandboxPolicy:
    """Return the policy of the container *host_ref*, which has these addresses."""
    return msgspec.structs.replace(found, host_ref=host_ref, addresses=addresses)


def mode(found: SandboxPolicy) -> Mode:
    """Return how a slot with this policy reaches the internet."""
    if found.direct:
        return "direct"
    return "closed" if found.cut_off else "gated"


def by_address(found: SandboxPolicy) -> bool:
    """Tell whether only addresses and ranges decide, which needs nobody who reads names."""
    chosen = [*found.allowed, *found.denied]
    plain = not (found.handled or found.secrets or found.intercept)
    return plain and all("/" in host or hosts.address(host) for host in chosen)


def shown(found: SandboxPolicy) -> NetworkPolicy:
    """Return what callers are told of it."""
    by_host = found.class_by_host | found.runtime_by_host
    everything = found.runtime_all or found.class_all
    return NetworkPolicy(
        mode=_NAMES[mode(found)],
        enable_internet=found.internet,
        allowed_hosts=list(found.allowed),
        denied_hosts=list(found.denied),
        intercept_https=found.intercept,
        outbound=_called(everything) if everything else None,
        outbound_by_host={host: _called(handler) for host, handler in by_host.items()},
    )


def opens_tls(found: SandboxPolicy) -> bool:
    """Tell whether the sandbox needs an authority of its own."""
    return found.intercept or bool(found.secrets)


def _list(own: tuple[str, ...] | None, inherited: list[str]) -> tuple[str, ...]:
    return tuple(map(hosts.canonical_pattern, inherited if own is None else own))


def _called(handler: Handler) -> str:
    return handler.function or handler.name or handler.table


def _chosen(handler: OutboundHandler) -> Handler:
    return Handler(table="outbound_handlers", name=handler.name, params=handler.params)
