import msgspec
from msgspec import UNSET

from atoll.wire.egress import ChangeNetwork


def test_a_list_that_is_given_as_null_is_not_one_that_is_left_out() -> None:
    """The one takes the class's list back, the other leaves things as they are."""
    read = msgspec.json.decode(b'{"allowedHosts": null}', type=ChangeNetwork)
    assert (read.allowed_hosts, read.denied_hosts) == (None, UNSET)
    assert msgspec.json.encode(read) == b'{"allowedHosts":null}'
