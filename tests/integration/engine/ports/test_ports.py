"""Exposed ports in the store and in memory: over restarts, destroys, and at the same time."""

import asyncio
import socket

import pytest

from atoll.engine.engine import Engine
from atoll.engine.processes import ports as probes
from atoll.errors import InvalidTokenError, PortNotExposedError, StalePreviewUrlError
from atoll.wire.ports import ExposePort, WaitForPorts
from atoll.wire.preview import Target
from integration.engine.conftest import Opener, engine, opener, world

__all__ = ["engine", "opener", "world"]


@pytest.fixture(autouse=True)
def _network_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripted sandboxes have no network of their own."""

    async def namespace(_: object) -> None:
        return None

    monkeypatch.setattr(probes, "namespace", namespace)


WANTED = ExposePort(port=8080, hostname="example.com")


async def test_a_restart_of_the_engine_changes_nothing_for_visitors(opener: Opener) -> None:
    async with opener() as first:
        found = await first.ports.expose(first.sandbox("N", "box"), WANTED)
        link = await first.ports.link(first.sandbox("N", "box"), 8080, 60)
    async with opener() as second:
        box = second.sandbox("N", "box")
        assert second.ports.listing(box) == [second.ports.find(_target(found.token)).exposure]
        assert second.ports.listing(box)[0].token == found.token
        place = second.ports.find(_target(found.token))
        key = link.url.rpartition("/")[2]
        assert await place.enter(key)
        assert not await place.enter(key)


def _target(token: str) -> Target:
    return Target(8080, "box", token, "example.com")


async def test_only_the_namespaces_that_are_asked_for_are_found(engine: Engine) -> None:
    found = await engine.ports.expose(engine.sandbox("N", "box"), WANTED)
    assert engine.ports.find(_target(found.token), frozenset({"N"})).namespace == "N"
    with pytest.raises(InvalidTokenError):
        engine.ports.find(_target(found.token), frozenset({"Other"}))


async def test_what_a_sandbox_that_ended_exposed_is_stale_and_of_one_destroyed_unknown(
    engine: Engine,
) -> None:
    box = engine.sandbox("N", "box")
    found = await engine.ports.expose(box, WANTED)
    cuts: list[str] = []
    with engine.ports.find(_target(found.token)).connected(lambda: cuts.append("cut")):
        await box.stop()
        with pytest.raises(StalePreviewUrlError):
            engine.ports.find(_target(found.token))
        assert engine.ports.state(box, 8080, found.token) == (False, False)
        await box.destroy()
        assert cuts == ["cut"]
    with pytest.raises(InvalidTokenError):
        engine.ports.find(_target(found.token))
    with pytest.raises(PortNotExposedError):
        engine.ports.visits(box, 8080)
    assert await engine.store.read("SELECT * FROM ports", ()) == []


async def test_the_same_port_exposed_by_many_at_once_has_one_address(engine: Engine) -> None:
    box = engine.sandbox("N", "box")
    found = await asyncio.gather(*(engine.ports.expose(box, WANTED) for _ in range(20)))
    assert len({one.token for one in found}) == 1


async def test_what_becomes_private_cuts_who_came_in_before(engine: Engine) -> None:
    box, cuts = engine.sandbox("N", "box"), list[str]()
    found = await engine.ports.expose(box, WANTED)
    with engine.ports.find(_target(found.token)).connected(lambda: cuts.append("cut")):
        await engine.ports.expose(box, WANTED)
        assert cuts == []
        private = ExposePort(port=8080, hostname="example.com", auth="bearer")
        assert (await engine.ports.expose(box, private)).token == found.token
        assert cuts == ["cut"]


async def test_ports_that_nobody_listens_on_are_named(engine: Engine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = server.getsockname()[1]
        wanted = WaitForPorts(ports=[there, 1, 1], wait_ms=50, interval_ms=20)
        assert await engine.ports.wait(engine.sandbox("N", "box"), wanted) == [1]
