from typing import Any

from atoll.network.foreign import forward_refusals


def chain(**fields: Any) -> dict[str, Any]:
    base = {"family": "ip", "table": "filter", "name": "FORWARD", "hook": "forward"}
    return {"chain": base | {"policy": "drop"} | fields}


def refusals(*items: dict[str, Any]) -> list[str]:
    return forward_refusals({"nftables": [{"metainfo": {}}, *items]})


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


def test_an_empty_listing_refuses_nothing() -> None:
    assert forward_refusals({}) == []
