"""Namespaces of a holder, and what can be tried in them."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from atoll.host import lasting
from atoll.network.rootless import networks
from atoll.network.rootless.networks import Slot, UserNetworks
from atoll.network_settings import NetworkSettings

SETTINGS = NetworkSettings(prepared=1)


def holder(folder: Path) -> lasting.Running:
    return msgspec.json.decode((folder / "holder.json").read_bytes(), type=lasting.Running)


def inside(slot: Slot, code: str) -> str:
    """Return what Python prints in the network of *slot*."""
    assert slot.netns
    owner = f"--user={slot.netns.parent.parent}/ns/user"
    enter = ["nsenter", owner, f"--net={slot.netns}", "--preserve-credentials"]
    done = subprocess.run(
        [*enter, sys.executable, "-I", "-S", "-c", f"import socket, time\n{code}"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    return done.stdout.strip() or done.stderr.strip().rpartition("\n")[2]


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[UserNetworks]:
    """Networks in a folder "n"; the holder is ended at the end."""
    found = UserNetworks(SETTINGS, tmp_path / "n")
    await found.open()
    if not found.way_out:
        reason = f"no network for users here: {networks.missing_tools()}"
        if os.environ.get("ATOLL_CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    yield found
    for host_ref in await found.list():
        await found.release(host_ref)
    await found.close()
