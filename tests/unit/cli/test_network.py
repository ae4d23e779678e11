import pytest

from atoll.cli.network import opened
from atoll.wire.egress import NetworkPolicy


def policy(*allowed: str, internet: bool = True) -> NetworkPolicy:
    return NetworkPolicy(mode="gateway", enable_internet=internet, allowed_hosts=list(allowed))


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (policy("a.test"), policy(), True),
        (policy("a.test", "b.test"), policy("b.test"), False),
        (policy(), policy(), False),
        (policy("a.test"), policy(internet=False), False),
    ],
)
def test_the_last_allowed_host_that_goes_opens_the_internet(
    before: NetworkPolicy, after: NetworkPolicy, found: bool
) -> None:
    """Who only takes a host away does not expect that: the command says it."""
    assert opened(before, after) is found
