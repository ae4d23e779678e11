"""The slots and the filter of a lost engine go; those of another stay."""

import pytest

from atoll.network import abandoned
from atoll.settings import NetworkSettings
from e2e.network.conftest import Engine
from e2e.network.test_slots import interfaces, tables

pytestmark = pytest.mark.e2e


async def test_only_the_lost_engines_network_is_removed(engine: Engine) -> None:
    lost, other = engine("lost"), engine("other")
    await lost.open()
    await other.open()
    gone, kept = await lost.acquire("a"), await other.acquire("b")
    await abandoned.remove(NetworkSettings(), "lost", gone.netns.parent)
    assert interfaces() == {kept.netns.name}
    assert not gone.netns.exists()
    assert tables() == ["table inet atoll_other"]
    await abandoned.remove(NetworkSettings(), "lost", gone.netns.parent)
