"""The slots and the filter of a lost engine go; those of another stay."""

import signal
import subprocess
import sys

import pytest

from atoll.network import abandoned, plan
from atoll.network_settings import NetworkSettings
from e2e.network.conftest import Engine
from e2e.network.test_slots import interfaces, tables

pytestmark = pytest.mark.e2e


def gateway_of(engine_id: str) -> subprocess.Popen[bytes]:
    """Start a process as the user who an engine's gateway is, which it becomes as that does."""
    uid = plan.gateway_uid(engine_id)
    program = (
        f"import os, time; os.setresuid({uid}, {uid}, {uid}); print(flush=True); time.sleep(99)"
    )
    made = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert made.stdout
    with made.stdout:
        made.stdout.readline()
    return made


async def test_only_the_lost_engines_network_is_removed(engine: Engine) -> None:
    lost, other = engine("lost"), engine("other")
    await lost.open()
    await other.open()
    gone, kept = await lost.acquire("a"), await other.acquire("b")
    gateways = {name: gateway_of(name) for name in ("lost", "other")}
    await abandoned.remove(NetworkSettings(), "lost", gone.netns.parent)
    assert gateways["lost"].wait(10) == -signal.SIGKILL
    assert gateways["other"].poll() is None
    gateways["other"].kill()
    gateways["other"].wait()
    assert interfaces() == {kept.netns.name}
    assert not gone.netns.exists()
    assert tables() == ["table inet atoll_other"]
    await abandoned.remove(NetworkSettings(), "lost", gone.netns.parent)
