from typing import Any

import pytest

from atoll.engine.egress import stored
from atoll.engine.egress.stored import Egress
from atoll.errors import ValidationFailedError
from atoll.network.gateway.protocol import Authority
from atoll.wire.egress import ChangeNetwork, EgressDefaults, OutboundHandler

CLASS = EgressDefaults(
    allowed_hosts=["Class.test"], denied_hosts=["bad.test"], outbound_handlers=["one", "two"]
)
ONE, TWO = OutboundHandler(name="one", params={"a": 1}), OutboundHandler(name="two")


def after(*changes: dict[str, Any], old: Egress | None = None) -> Egress:
    found = old or Egress()
    for change in changes:
        found = stored.changed(found, ChangeNetwork(**change), CLASS)
    return found


def test_a_list_begins_as_that_of_the_class() -> None:
    assert after({"allow": ["A.test."]}).allowed == ("class.test", "a.test")
    assert after({"disallow": ["CLASS.test"]}).allowed == ()
    assert after({"deny": ["b.test"], "undeny": ["bad.test"]}).denied == ("b.test",)


def test_taking_out_what_is_not_there_leaves_the_classs_list_in_charge() -> None:
    assert after({"disallow": ["other.test"], "allow": ["class.test"]}).allowed is None


def test_a_list_that_is_set_replaces_the_classs_until_it_is_taken_back() -> None:
    own = after({"allowed_hosts": ["b.test", "B.test", "10.0.0.1/8"]}, {"allow": ["c.test"]})
    assert own.allowed == ("b.test", "10.0.0.0/8", "c.test")
    assert own.denied is None
    assert after({"allowed_hosts": None}, old=own).allowed is None
    assert after({"allowed_hosts": []}, old=own).allowed == ()


def test_handlers_are_added_replaced_and_removed() -> None:
    own = after({"handle": {"A.test": ONE}}, {"handle": {"b.test": TWO}}, {"unhandle": ["a.TEST"]})
    assert own.by_host == {"b.test": TWO}
    assert after({"outbound_by_host": {"c.test": ONE}}, old=own).by_host == {"c.test": ONE}
    assert after({"outbound": ONE}).handler == ONE
    assert after({"outbound": ONE}, {"outbound": None}).handler is None


def test_what_a_change_does_not_name_stays() -> None:
    own = Egress(authority=Authority("c", "k"), handler=ONE, denied=("x.test",))
    assert after({"allow": ["a.test"]}, old=own) == Egress(
        authority=Authority("c", "k"),
        handler=ONE,
        denied=("x.test",),
        allowed=("class.test", "a.test"),
    )


@pytest.mark.parametrize(
    "change",
    [
        {"allow": ["http://a.test"]},
        {"denied_hosts": [""]},
        {"handle": {"a b": ONE}},
        {"outbound": OutboundHandler(name="three")},
        {"handle": {"a.test": OutboundHandler(name="one", params="x" * 70_000)}},
        {"allowed_hosts": [f"h{n}.test" for n in range(1_001)]},
        {"allow": [f"h{n}.test" for n in range(1_001)]},
        {"handle": {f"h{n}.test": ONE for n in range(1_001)}},
    ],
)
def test_what_cannot_be_meant_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationFailedError):
        after(change)


def test_defaults_with_what_is_no_host_are_refused() -> None:
    stored.check_defaults(CLASS)
    with pytest.raises(ValidationFailedError):
        stored.check_defaults(EgressDefaults(outbound_by_host=["a/b"]))


def test_a_key_is_never_shown() -> None:
    assert "secret" not in repr(Egress(authority=Authority("c", "secret")))
