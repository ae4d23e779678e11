import msgspec
import pytest

from atoll.network.gateway.control import HANDLER_TIMEOUT
from atoll.network_settings import NetworkSettings


@pytest.mark.parametrize("seconds", [0, -1, HANDLER_TIMEOUT])
def test_a_handler_has_some_time_and_less_than_the_gateway_waits(seconds: float) -> None:
    with pytest.raises(msgspec.ValidationError, match="handler_timeout"):
        msgspec.convert({"handler_timeout": seconds}, NetworkSettings)
