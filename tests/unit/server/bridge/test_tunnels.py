import pytest

from atoll.errors import ValidationFailedError
from atoll.server.bridge.tunnels import checked_name, checked_port


@pytest.mark.parametrize("text", ["0", "80", "1023", "3000", "65536", "x", "-1", "1e4", "٨٠٨٠", ""])
def test_ports_that_cannot_have_a_tunnel_are_refused(text: str) -> None:
    with pytest.raises(ValidationFailedError, match="Invalid port"):
        checked_port(text)


def test_other_ports_can() -> None:
    assert checked_port("8080") == 8080


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a.b", "a" * 64, 7])
def test_names_of_tunnels_are_dns_labels(name: object) -> None:
    with pytest.raises(ValidationFailedError):
        checked_name({"name": name})


def test_a_tunnel_needs_no_name() -> None:
    assert checked_name({}) is None
    assert checked_name({"name": "my-app"}) == "my-app"
