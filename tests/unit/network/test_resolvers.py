from pathlib import Path

from atoll.network.resolvers import (
    RESOLV_CONF,
    RESOLVED_UPSTREAM,
    host_nameservers,
    parse_resolv_conf,
)


def found(files: dict[Path, str]) -> tuple[str, ...]:
    return host_nameservers(lambda path: files.get(path, ""))


def test_nameserver_lines_are_read_in_order_and_all_else_is_not() -> None:
    text = "# c\nsearch a b\nnameserver 10.0.0.1\n  nameserver\t9.9.9.9 # x\noptions ndots:1\nnameserver\n"
    assert parse_resolv_conf(text) == ["10.0.0.1", "9.9.9.9"]


def test_what_is_no_ipv4_address_is_left_out() -> None:
    assert parse_resolv_conf("nameserver ::1\nnameserver fe80::1%eth0\nnameserver x\n") == []


def test_the_hosts_resolvers_are_taken() -> None:
    assert found({RESOLV_CONF: "nameserver 10.0.0.1\nnameserver 10.0.0.2\n"}) == (
        "10.0.0.1",
        "10.0.0.2",
    )


def test_behind_the_systemd_stub_its_upstream_servers_are_taken() -> None:
    files = {RESOLV_CONF: "nameserver 127.0.0.53\n", RESOLVED_UPSTREAM: "nameserver 10.0.0.9\n"}
    assert found(files) == ("10.0.0.9",)


def test_no_public_resolver_is_chosen_behind_the_operators_back() -> None:
    assert found({RESOLV_CONF: "nameserver 127.0.0.1\n"}) == ()
    assert found({}) == ()


def test_no_more_than_the_c_library_reads() -> None:
    text = "".join(f"nameserver 10.0.0.{n}\n" for n in range(1, 9))
    assert len(found({RESOLV_CONF: text})) == 3
