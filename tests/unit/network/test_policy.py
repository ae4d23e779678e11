from itertools import product
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.network.policy import Handler, Outbound, Protocol, SandboxPolicy, Secret, Verdict, decide

PUBLIC = "93.184.216.34"
BY_NAME = Handler(table="outbound_handlers", name="by_name")
CLASS_BY_NAME = Handler(table="outbound_by_host", name="a.test")
ALL = Handler(table="outbound_handlers", name="all")
CLASS_ALL = Handler(table="outbound")

NAMES = ("a.test", "b.a.test", "b.test", "c.example")
PATTERNS = (*NAMES, "*.test", "*", "*.a.test", PUBLIC, "93.0.0.0/8")


def policy(**fields: Any) -> SandboxPolicy:
    return SandboxPolicy(key="Sandbox/a", host_ref="r", addresses=("10.213.0.2",), **fields)


def wanted(host: str = "", protocol: Protocol = "http", **fields: Any) -> Outbound:
    names = fields.pop("names", (host,) if host else ())
    return Outbound(protocol=protocol, host=host, address=PUBLIC, port=80, names=names, **fields)


def ask(host: str) -> Outbound:
    return Outbound(protocol="dns", host=host)


def verdict(rules: SandboxPolicy, request: Outbound) -> tuple[str, str]:
    found = decide(rules, request)
    return found.action, found.rule


def test_the_order_of_decisions() -> None:
    """Each rule is taken away in turn, and the next one decides."""
    fields: dict[str, Any] = {
        "denied": ("a.test",),
        "allowed": ("a.test", "z.test"),
        "runtime_by_host": {"a.test": BY_NAME},
        "class_by_host": {"*.test": CLASS_BY_NAME},
        "runtime_all": ALL,
        "class_all": CLASS_ALL,
        "internet": False,
    }
    seen = [verdict(policy(**fields), wanted("a.test"))]
    for name in list(fields)[:1] + list(fields)[2:6]:
        fields.pop(name)
        seen.append(verdict(policy(**fields), wanted("a.test")))
    fields.pop("allowed")
    seen.append(verdict(policy(**fields), wanted("a.test")))
    fields.pop("internet")
    seen.append(verdict(policy(**fields), wanted("a.test")))
    assert seen == [
        ("refuse", "denied_hosts: a.test"),
        ("handle", "outbound_by_host (runtime): a.test"),
        ("handle", "outbound_by_host (class): *.test"),
        ("handle", "outbound (runtime)"),
        ("handle", "outbound (class)"),
        ("allow", "allowed_hosts: a.test"),
        ("refuse", "enable_internet"),
        ("allow", "enable_internet"),
    ]


def test_a_list_of_allowed_hosts_is_above_handlers() -> None:
    rules = policy(allowed=("b.test",), class_all=CLASS_ALL)
    assert verdict(rules, wanted("a.test")) == ("refuse", "not in allowed_hosts")
    assert verdict(rules, ask("a.test")) == ("refuse", "not in allowed_hosts")


def test_the_most_exact_handler_is_taken() -> None:
    rules = policy(runtime_by_host={"*": ALL, "*.test": CLASS_ALL, "a.test": BY_NAME})
    assert decide(rules, wanted("a.test")).handler == BY_NAME
    assert decide(rules, wanted("b.test")).handler == CLASS_ALL


@pytest.mark.parametrize("host", ["A.TEST", "a.test.", "a.test:8080"])
def test_a_host_is_compared_in_its_one_form(host: str) -> None:
    request = wanted(host, names=("a.test",))
    assert verdict(policy(denied=("a.test",)), request) == ("refuse", "denied_hosts: a.test")


@pytest.mark.parametrize("host", ["", "a.test\0.b.test", "u@a.test", "a.test..", "a test", "%61"])
def test_a_request_without_a_valid_host_is_refused(host: str) -> None:
    assert verdict(policy(), wanted(host)) == ("refuse", "invalid host")


@pytest.mark.parametrize("protocol", ["http", "https", "tls"])
def test_a_claim_needs_an_address_that_was_given_for_it(protocol: Protocol) -> None:
    """The address of an allowed host, with another host's name: domain fronting."""
    rules = policy(allowed=("a.test", "c.example"))
    request = wanted("c.example", protocol, names=("a.test",))
    assert verdict(rules, request) == ("refuse", "host and address differ")


def test_a_request_inside_opened_tls_is_for_the_name_outside() -> None:
    request = wanted("b.test", "https", sni="a.test", names=("a.test", "b.test"))
    assert verdict(policy(), request) == ("refuse", "sni and host differ")
    assert decide(policy(), wanted("a.test", "https", sni="A.test.")).action == "allow"


def test_without_a_claim_one_denied_name_refuses() -> None:
    request = wanted(protocol="tcp", names=("a.test", "b.test"))
    assert decide(policy(denied=("b.test",)), request).action == "refuse"
    assert decide(policy(denied=("c.example",)), request).action == "allow"
    assert decide(policy(allowed=("b.test",)), request).action == "allow"


def test_an_address_without_a_name_is_refused_under_any_list() -> None:
    """It may be that of a denied host."""
    bare = wanted(protocol="tcp")
    assert verdict(policy(denied=("a.test",)), bare) == ("refuse", "address without a name")
    assert verdict(policy(allowed=("*",)), bare) == ("refuse", "not in allowed_hosts")
    assert verdict(policy(internet=False), bare) == ("refuse", "enable_internet")
    assert verdict(policy(intercept=True), bare) == ("allow", "enable_internet")
    for pattern in (PUBLIC, "93.184.0.0/16"):
        rules = policy(allowed=(pattern,), denied=("a.test",), internet=False)
        assert verdict(rules, bare) == ("allow", f"allowed_hosts: {pattern}")


@pytest.mark.parametrize("address", ["169.254.169.254", "10.0.0.1", "::1", "fd00:ec2::254"])
def test_no_list_of_a_caller_opens_a_private_address(address: str) -> None:
    """Also where a name was resolved to it."""
    rules = policy(allowed=("*", "0.0.0.0/0", "::/0", address))
    request = Outbound(protocol="tcp", address=address, port=80, names=("a.test",))
    assert verdict(rules, request) == ("refuse", "private address")


def test_the_operator_opens_private_ranges_but_not_the_host() -> None:
    rules = policy(opened=("10.0.0.0/8",), closed=("10.213.0.0/16",))
    other = Outbound(protocol="tcp", address="10.1.2.3", port=80)
    neighbour = Outbound(protocol="tcp", address="10.213.0.6", port=80)
    assert decide(rules, other).action == "allow"
    assert verdict(rules, neighbour) == ("refuse", "address of this host or of a sandbox")


def test_handlers_see_https_only_where_tls_is_opened() -> None:
    closed, opened = policy(class_all=CLASS_ALL), policy(class_all=CLASS_ALL, intercept=True)
    assert decide(closed, wanted("a.test", "tls")).action == "allow"
    found = decide(opened, wanted("a.test", "tls"))
    assert (found.action, found.intercept) == ("handle", True)
    assert decide(policy(class_all=CLASS_ALL, internet=False), wanted("a.test", "tls")).action == (
        "refuse"
    )
    assert decide(opened, wanted("a.test", "tcp")).handler is None


def test_pinned_hosts_keep_their_tls() -> None:
    rules = policy(intercept=True, bypass=("a.test",), class_all=CLASS_ALL)
    assert decide(rules, wanted("a.test", "tls")) == Verdict(
        action="allow", rule="enable_internet", host="a.test"
    )
    assert decide(rules, wanted("b.test", "tls")).intercept


def test_tls_is_opened_for_hosts_that_get_a_secret() -> None:
    secret = Secret(name="KEY", placeholder="p", hosts=("*.a.test",), value="hidden")
    rules = policy(secrets=(secret,))
    assert decide(rules, wanted("b.a.test", "tls")).intercept
    assert not decide(rules, wanted("b.test", "tls")).intercept
    assert "hidden" not in repr(rules)


def test_names_are_resolved_for_real_only_where_they_go_out() -> None:
    """A name that only a handler answers must not leave as a question: it could carry data."""
    handled = policy(class_all=CLASS_ALL, internet=False)
    assert decide(handled, ask("secret-data.evil.test")).action == "handle"
    both = decide(policy(class_all=CLASS_ALL), ask("a.test"))
    assert (both.action, both.handler) == ("allow", CLASS_ALL)
    assert decide(policy(internet=False), ask("a.test")).action == "refuse"


def test_a_policy_that_decides_nothing_needs_no_gateway() -> None:
    assert policy().direct
    for fields in ({"allowed": ("a",)}, {"denied": ("a",)}, {"class_all": ALL},
                   {"runtime_by_host": {"a": ALL}}, {"intercept": True}, {"internet": False},
                   {"secrets": (Secret(name="K", placeholder="p", hosts=("a",)),)}):  # fmt: skip
        assert not policy(**fields).direct
    assert policy(internet=False, denied=("a.test",)).cut_off
    assert not policy(internet=False, allowed=("a.test",)).cut_off


_LISTS = st.lists(st.sampled_from(PATTERNS), max_size=3).map(tuple)
_POLICIES = st.builds(
    policy,
    internet=st.booleans(),
    allowed=_LISTS,
    denied=_LISTS,
    intercept=st.booleans(),
    class_by_host=st.dictionaries(st.sampled_from(PATTERNS), st.just(CLASS_BY_NAME), max_size=2),
    runtime_all=st.sampled_from([None, ALL]),
)
_PINS = st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(tuple)


def _meant(patterns: tuple[str, ...], host: str) -> bool:
    globs = {"*.test": host.endswith(".test"), "*.a.test": host.endswith(".a.test"), "*": True}
    return any(globs.get(pattern, pattern == host) for pattern in patterns)


@given(_POLICIES, st.sampled_from(NAMES), _PINS, st.sampled_from(["http", "tls", "https"]))
def test_what_goes_out_is_named_proved_allowed_and_not_denied(
    rules: SandboxPolicy, host: str, names: tuple[str, ...], protocol: Protocol
) -> None:
    found = decide(rules, wanted(host, protocol, names=names))
    address_listed = bool({PUBLIC, "93.0.0.0/8"} & set(rules.allowed))
    if found.action != "refuse":
        assert host in names
        assert not _meant(rules.denied, host)
        assert not {PUBLIC, "93.0.0.0/8"} & set(rules.denied)
        assert not rules.allowed or _meant(rules.allowed, host) or address_listed
    if found.action == "allow":
        assert rules.internet or rules.allowed


@given(_POLICIES, st.sampled_from(NAMES))
def test_a_connection_by_name_is_possible_only_if_the_name_is_answered(
    rules: SandboxPolicy, host: str
) -> None:
    """Else a name that is refused would still be reached by whoever knows its address."""
    by_address = {PUBLIC, "93.0.0.0/8"} & {*rules.allowed}
    if not by_address and decide(rules, ask(host)).action == "refuse":
        for protocol in ("http", "tls", "https"):
            assert decide(rules, wanted(host, protocol)).action == "refuse"


@given(_POLICIES, _PINS)
def test_bare_connections_go_out_by_name_or_by_a_listed_address(
    rules: SandboxPolicy, names: tuple[str, ...]
) -> None:
    if decide(rules, wanted(protocol="tcp", names=names)).action == "allow":
        assert not any(_meant(rules.denied, name) for name in names)
        listed = {PUBLIC, "93.0.0.0/8"} & set(rules.allowed)
        named = any(_meant(rules.allowed, name) for name in names)
        assert listed or named or (rules.internet and not rules.allowed)


def test_every_protocol_has_an_answer() -> None:
    for protocol, host, address in product(
        get_args(Protocol), ("", "a.test", "!"), ("", PUBLIC, "x")
    ):
        found = decide(policy(), Outbound(protocol=protocol, host=host, address=address))
        assert found.rule
