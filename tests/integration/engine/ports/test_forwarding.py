import asyncio
import socket
from datetime import timedelta

import pytest

from atoll.engine.engine import Engine
from atoll.engine.ports import forwarding
from atoll.engine.ports.forwarding import Forwarding
from atoll.engine.processes import ports as probes
from atoll.engine.store import record as rules
from atoll.errors import (
    ContainerUnavailableError,
    InvalidTokenError,
    ServiceNotRespondingError,
    StalePreviewUrlError,
)
from atoll.wire.ports import ExposePort
from integration.engine.conftest import engine, opener, world

__all__ = ["engine", "opener", "world"]


@pytest.fixture(autouse=True)
def _network_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripted sandboxes have no network of their own."""

    async def namespace(_: object) -> None:
        return None

    monkeypatch.setattr(probes, "namespace", namespace)


async def exposed(engine: Engine, port: int, expires: int | None = None) -> Forwarding:
    box = engine.sandbox("N", "box")
    wanted = ExposePort(port=port, expires_ms=expires)
    await engine.ports.expose(box, wanted)
    found = engine.ports.get(box, port)
    assert found
    return found


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_a_server_on_either_loopback_is_reached(engine: Engine, address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server:
        place = await exposed(engine, server.getsockname()[1])
        with await place.dial() as connection:
            assert connection.getpeername()[0] == address


async def test_nothing_there_is_a_typed_error(engine: Engine) -> None:
    place = await exposed(engine, 65_535)
    with pytest.raises(ServiceNotRespondingError, match="65535"):
        await place.dial()


async def test_a_sandbox_that_sleeps_is_not_dialled(engine: Engine) -> None:
    place = await exposed(engine, 8080)
    await engine.sandbox("N", "box").stop()
    assert not place.active()
    with pytest.raises(StalePreviewUrlError):
        await place.dial()


async def test_one_connection_too_many_is_refused(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "MAX_CONNECTIONS", 1)
    place = await exposed(engine, 8080)
    first, second = place.connected(lambda: None), place.connected(lambda: None)
    with first, pytest.raises(ContainerUnavailableError):
        second.__enter__()
    with place.connected(lambda: None):
        pass


async def test_an_end_cuts_what_is_open(engine: Engine) -> None:
    place = await exposed(engine, 8080, expires=300)
    ended = asyncio.Event()
    with place.connected(ended.set):
        async with asyncio.timeout(20):
            await ended.wait()
    end = place.exposure.expires_at
    assert end
    while rules.now() < end + timedelta(milliseconds=1):
        await asyncio.sleep(0.01)
    with pytest.raises(InvalidTokenError):
        place.check()


async def test_traffic_is_activity_and_an_awaited_answer_holds(engine: Engine) -> None:
    place = await exposed(engine, 8080)
    box = engine.sandbox("N", "box")
    before = box.activity.last
    place.touch()
    assert box.activity.last >= before
    with place.waiting():
        assert box.activity.holds()
    assert not box.activity.holds()
    await box.stop()
    place.touch()
    with place.waiting():
        pass
