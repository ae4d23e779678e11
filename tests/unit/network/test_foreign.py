from typing import Any

from atoll.network import foreign


def chain(**fields: Any) -> dict[str, Any]:
    base = {"family": "ip", "table": "filter", "name": "FORWARD", "hook": "forward"}
    return {"chain": base | {"policy": "drop"} | fields}


def refusals(*items: dict[str, Any]) -> list[str]:
    return foreign.refusals({"nftables": [{"metainfo": {}}, *items]}, "forward")


def test_a_forward_chain_that_drops_is_named() -> None:
    assert refusals(chain(), chain(family="inet", table="firewalld", name="f")) == [
        "ip filter FORWARD",
        "inet firewalld f",
    ]


def test_what_does_not_stop_sandboxes_is_not() -> None:
    harmless = (
        chain(policy="accept"),
        chain(hook="input"),
        chain(family="ip6"),
        chain(table="atoll_x"),
        {"chain": {"family": "ip", "table": "filter", "name": "DOCKER-USER"}},
    )
    assert refusals(*harmless) == []


def test_an_input_chain_that_drops_is_named_apart() -> None:
    listing = {"nftables": [chain(), chain(hook="input", name="INPUT")]}
    assert foreign.refusals(listing, "input") == ["ip filter INPUT"]


def test_an_empty_listing_refuses_nothing() -> None:
    assert foreign.refusals({}, "input") == []
