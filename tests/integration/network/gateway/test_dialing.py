import ssl

import pytest

from atoll.network.gateway.dialing import Dialer, OwnAddress, is_own, reason


def test_an_address_of_this_host_is_known_as_one() -> None:
    assert is_own("127.0.0.1")
    assert not is_own("192.0.2.1")


async def test_this_host_is_never_connected_to() -> None:
    with pytest.raises(OwnAddress):
        await Dialer(ssl.create_default_context()).connect("127.0.0.1", 80)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TimeoutError(), "does not answer"),
        (ConnectionRefusedError(111, "Connect call failed ('x', 1)"), "Connection refused"),
        (OwnAddress("address of this host"), "address of this host"),
        (ValueError(), "ValueError"),
    ],
)
def test_a_reason_is_short_and_names_no_socket(error: Exception, text: str) -> None:
    assert text in reason(error)
