import pytest

from atoll.wire.base import Done, Empty
from atoll.wire.keys import Scope
from atoll.wire.operation import Op


def test_what_only_waits_takes_no_key() -> None:
    assert not Op("x", "POST", "/v2/x", Empty, Done, waits=True).mutates


@pytest.mark.parametrize(
    ("method", "scope", "mutates"),
    [("POST", Scope.RUN, True), ("GET", Scope.RUN, False), ("POST", Scope.READ, False)],
)
def test_only_what_may_change_something_takes_a_key(
    method: str, scope: Scope, mutates: bool
) -> None:
    assert Op("x", method, "/v2/x", Empty, Done, scope=scope).mutates is mutates
