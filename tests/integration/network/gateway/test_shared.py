import pytest

from integration.network.gateway.harness import Harness, policy


async def test_a_handlers_host_is_found_but_never_a_closed_address(gateway: Harness) -> None:
    gateway.name("both.test", "10.0.0.1", "93.184.216.34")
    gateway.name("private.test", "10.0.0.1")
    in_force = policy(opened=())
    assert await gateway.shared.find(in_force, "both.test") == "93.184.216.34"
    for host in ("private.test", "10.0.0.1", "none.test"):
        with pytest.raises(OSError):
            await gateway.shared.find(in_force, host)
