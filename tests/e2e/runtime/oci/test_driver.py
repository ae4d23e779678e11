import asyncio
import os
from pathlib import Path

import pytest

from atoll.errors import ContainerUnavailableError
from atoll.runtime.base import Mount
from atoll.runtime.oci.driver import OciRuntime
from atoll.settings import RuntimeSettings, StorageSettings
from e2e.runtime.boxes import Bench, Box
from e2e.runtime.roots import CACHE

pytestmark = pytest.mark.e2e


async def test_the_agent_answers_in_a_root_without_python_or_libc(box: Box) -> None:
    hello = box.call("hello")
    assert (hello["generation"], hello["pid"]) == (1, 1)
    assert box.sh("echo $((2 + 2))") == "4\n"


async def test_the_agent_answers_in_a_musl_root(bench: Bench) -> None:
    async with bench.running("musl") as box:
        assert box.sh("hi") == "musl says hi\n"


async def test_the_agent_answers_in_a_debian_root(bench: Bench) -> None:
    async with bench.running("debian") as box:
        assert box.exec("echo $BASH_VERSION").stdout.startswith(b"5.")
        assert "Debian" in box.sh("cat /etc/os-release")
