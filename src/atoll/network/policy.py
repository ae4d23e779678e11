"""What a sandbox may reach, decided in one place. Pure; the engine, the gateway and tests use it.

The order is fixed: denied hosts; allowed hosts, when there are any; handler of the host set at run
time, then of the class; handler of everything set at run time, then of the class; allowed hosts
also without internet; internet; refused. What surrounds it, in words:

* A connection is for the name that it claims (SNI, Host), and our resolver must have given this
  sandbox that address for that name; else it is refused, whatever the lists say. Without a claim it
  is for all names of the address: one that is denied refuses it.
* An address that has no name is itself the host. Under any list, or without internet, it goes out
  only if `allowed_hosts` has it.
* An address outside the public internet is never connected to unless the operator opened it. No
  list of a caller does that.
* Handlers see requests, so they apply to HTTP, and to HTTPS only where TLS is opened. Other
  connections are decided as if there were none.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from atoll.network import hosts

Protocol: TypeAlias = Literal["dns", "http", "tls", "https", "tcp"]
"""`tls`: a ClientHello was seen; `https`: a request inside opened TLS; `tcp`: anything else."""

Action: TypeAlias = Literal["allow", "handle", "refuse"]


class Handler(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function of a Worker that answers requests.

    Args:
        table: the class attribute it is found in.
        name: its key there; empty for `outbound`.
        params: what `set_outbound_handler` was given for it, any JSON.
        function: what the function is called, for people.
    """

    table: Literal["outbound", "outbound_by_host", "outbound_handlers"]
    name: str = ""
    params: Any = None
    function: str = ""


class Secret(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value that exists outside only. `hosts`: patterns of those that may be given it."""

    name: str
    placeholder: str
    hosts: tuple[str, ...]
    value: str = ""

    def __repr__(self) -> str:
        return f"Secret({self.name!r}, hosts={self.hosts!r})"


class SandboxPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that decides for one sandbox. Hosts and patterns are in their one form (`hosts`).

    Args:
        key: "namespace/id", for logs and handlers.
        host_ref: its container's name.
        addresses: its own addresses, by which the gateway knows it.
        internet: whether hosts that no list names are reached.
        allowed: when not empty, the only hosts reached.
        denied: hosts never reached.
        opened: ranges outside the public internet that the operator lets sandboxes reach.
        closed: ranges never reached, the host's own and other sandboxes'; above `opened`.
        intercept: whether TLS is opened.
        bypass: hosts whose TLS stays closed all the same (pinned certificates).
        runtime_by_host: handlers set at run time, by pattern.
        class_by_host: the class's.
        runtime_all: handler of all hosts set at run time.
        class_all: the class's.
        secrets: what is put in on the way out.
        max_connections: open at once.
        version: grows with every change; the gateway ignores an older one.
    """

    key: str
    host_ref: str
    addresses: tuple[str, ...]
    internet: bool = True
    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    intercept: bool = False
    bypass: tuple[str, ...] = ()
    runtime_by_host: dict[str, Handler] = {}
    class_by_host: dict[str, Handler] = {}
    runtime_all: Handler | None = None
    class_all: Handler | None = None
    secrets: tuple[Secret, ...] = ()
    max_connections: int = 1_024
    version: int = 0

    @property
    def direct(self) -> bool:
        """Whether there is nothing to decide, so that no gateway is needed for connections."""
        listed = self.allowed or self.denied or self.secrets or self.intercept
        return self.internet and not listed and not self.handled

    @property
    def cut_off(self) -> bool:
        """Whether nothing at all is reached, so that not even names are asked for."""
        return not (self.internet or self.allowed or self.handled)

    @property
    def handled(self) -> bool:
        """Whether the sandbox has any handler."""
        by_host = self.runtime_by_host or self.class_by_host
        return bool(by_host or self.runtime_all or self.class_all)


class Outbound(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a sandbox wants.

    Args:
        protocol: what it is.
        host: the name in the question, the SNI or the Host header as sent; empty: none.
        sni: for `https`: the SNI of the connection around the request.
        address: where the connection was going; empty for `dns`.
        port: likewise.
        names: names for which the resolver gave this sandbox that address, still valid; the last
            one that was asked for first, so that it is the one a rule is blamed on.
    """

    protocol: Protocol
    host: str = ""
    sni: str = ""
    address: str = ""
    port: int = 0
    names: tuple[str, ...] = ()


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done.

    Args:
        action: `allow`: let it out; `handle`: only the handler answers; `refuse`. For `dns`,
            `allow` asks a real resolver, `handle` invents an address.
        rule: what decided, for the log: the list or option, then the pattern.
        host: whom it is for. With `allow` and `handle` it is proved (claim and address fit, or the
            address has one name only); secrets are given to this name alone.
        handler: who answers; for `dns` it may stand beside `allow`.
        intercept: for `tls`: whether to open it. Then each request inside is decided again.
    """

    action: Action
    rule: str
    host: str = ""
    handler: Handler | None = None
    intercept: bool = False


def decide(policy: SandboxPolicy, wanted: Outbound) -> Verdict:
    """Decide about one name, connection or request."""
    if wanted.protocol == "dns":
        return _decide_name(policy, hosts.canonical_name(wanted.host))
    target = hosts.address(wanted.address)
    claimed = _claimed(wanted)
    if target is None or claimed is None:
        return _refused("invalid host")
    literal = str(target)
    named = (claimed,) if claimed else wanted.names or (literal,)
    if rule := _listed("denied_hosts", policy.denied, *named, literal):
        return _refused(rule, claimed)
    if wanted.protocol == "https" and wanted.sni and _host(wanted.sni) != claimed:
        return _refused("sni and host differ", claimed)
    if claimed and claimed not in (*wanted.names, literal):
        return _refused("host and address differ", claimed)
    return _decide_connection(policy, wanted, named, target)


def closed_range(policy: SandboxPolicy, target: hosts.Address) -> str:
    """Return why an address is never connected to, or an empty string.

    The resolver leaves such addresses out of its answers.
    """
    if any(hosts.matches(network, str(target)) for network in policy.closed):
        return "address of this host or of a sandbox"
    return "private address" if hosts.is_closed(target, policy.opened) else ""


def _decide_name(policy: SandboxPolicy, name: str | None) -> Verdict:
    if name is None:
        return _refused("invalid host")
    if rule := _listed("denied_hosts", policy.denied, name):
        return _refused(rule, name)
    allowed = _listed("allowed_hosts", policy.allowed, name)
    if policy.allowed and not allowed:
        return _refused("not in allowed_hosts", name)
    handler, by = _handler(policy, (name,))
    if allowed or policy.internet:
        rule = allowed or "enable_internet"
        return Verdict(action="allow", rule=rule, host=name, handler=handler)
    if handler:
        return Verdict(action="handle", rule=by, host=name, handler=handler)
    return _refused("enable_internet", name)


def _decide_connection(
    policy: SandboxPolicy, wanted: Outbound, named: tuple[str, ...], target: hosts.Address
) -> Verdict:
    """Decide from the second rule on: nothing is denied, and what is claimed fits."""
    host = named[0] if len(named) == 1 else ""
    allowed = _listed("allowed_hosts", policy.allowed, *named, str(target))
    if policy.allowed and not allowed:
        return _refused("not in allowed_hosts", host)
    opens = wanted.protocol == "tls" and _opens(policy, named)
    if opens or wanted.protocol in {"http", "https"}:
        handler, by = _handler(policy, named)
        if handler:
            return Verdict(action="handle", rule=by, host=host, handler=handler, intercept=opens)
    if not (allowed or policy.internet):
        return _refused("enable_internet", host)
    if policy.denied and not allowed and not wanted.names:
        return _refused("address without a name", host)
    if closed := closed_range(policy, target):
        return _refused(closed, host)
    return Verdict(action="allow", rule=allowed or "enable_internet", host=host, intercept=opens)


def _claimed(wanted: Outbound) -> str | None:
    """Return the host that a connection says it is for; empty: it says none; None: no host."""
    if not wanted.host:
        return "" if wanted.protocol in {"tls", "tcp"} else None
    return _host(wanted.host)


def _host(authority: str) -> str | None:
    return hosts.canonical_host(hosts.split_port(authority))


def _handler(policy: SandboxPolicy, named: tuple[str, ...]) -> tuple[Handler | None, str]:
    """Return the handler in charge and the rule that names it."""
    for kind, table in (("runtime", policy.runtime_by_host), ("class", policy.class_by_host)):
        if pattern := _most_exact(table, named):
            return table[pattern], f"outbound_by_host ({kind}): {pattern}"
    for kind, handler in (("runtime", policy.runtime_all), ("class", policy.class_all)):
        if handler:
            return handler, f"outbound ({kind})"
    return None, ""


def _most_exact(table: Mapping[str, Handler], named: tuple[str, ...]) -> str:
    """Return the pattern without a star before others, then the longest one."""
    found = [pattern for pattern in table if any(hosts.matches(pattern, host) for host in named)]
    return max(found, key=lambda pattern: ("*" not in pattern, len(pattern), pattern), default="")


def _opens(policy: SandboxPolicy, named: tuple[str, ...]) -> bool:
    """Tell whether TLS for these hosts is opened."""
    if any(_matching(policy.bypass, host) for host in named):
        return False
    bound = (pattern for secret in policy.secrets for pattern in secret.hosts)
    return policy.intercept or any(hosts.matches(p, host) for p in bound for host in named)


def _listed(name: str, patterns: tuple[str, ...], *candidates: str) -> str:
    """Return "list: pattern" of the first pattern that means one of the hosts, or an empty one."""
    for host in candidates:
        if pattern := _matching(patterns, host):
            return f"{name}: {pattern}"
    return ""


def _matching(patterns: tuple[str, ...], host: str) -> str:
    return next((pattern for pattern in patterns if hosts.matches(pattern, host)), "")


def _refused(rule: str, host: str | None = "") -> Verdict:
    return Verdict(action="refuse", rule=rule, host=host or "")
