"""What a caller's Dockerfile runs has the network of a sandbox."""

import io
import json
import os
import signal
import socket
import tarfile
import tempfile
import textwrap
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from atoll.errors import ImageNotFoundError
from atoll.images.store import ImageStore
from atoll.settings import ImageSettings, StorageSettings
from integration.server.engines import EngineProcess, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TAG = "atoll-test/caller"
TRY = """
import socket, sys
for place in sys.argv[1:]:
    host, port = place.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), 3).close()
    except OSError as error:
        print("refused", place)
    else:
        print("reached", place)
"""


@pytest.fixture
async def engine() -> AsyncIterator[EngineProcess]:
    if os.geteuid():
        pytest.skip("needs root")
    with tempfile.TemporaryDirectory(prefix="atoll-e2e-", dir="/tmp") as folder:
        found = EngineProcess(Path(folder), level="container")
        assert "error" not in found.hello, found.hello
        yield found
        assert found.end() == 0
    with suppress(ImageNotFoundError):
        await ImageStore(StorageSettings(), ImageSettings()).remove(TAG)


def context(*lines: str) -> bytes:
    files = {"Dockerfile": "\n".join(lines), "try.py": textwrap.dedent(TRY)}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


def build(engine: EngineProcess, *lines: str) -> list[dict[str, Any]]:
    with engine.client() as client:
        url = f"/v2/images/build?tag={TAG}"
        answer = client.post(url, content=context(*lines), timeout=240)
    return [json.loads(line) for line in answer.text.splitlines()]


def test_a_callers_build_reaches_the_internet_but_nothing_of_the_host(
    engine: EngineProcess,
) -> None:
    """DNS and the package index work; the host's loopback and its own addresses do not."""
    with (
        socket.create_server(("127.0.0.1", 0)) as loopback,
        socket.create_server(("0.0.0.0", 0)) as everywhere,
    ):
        places = [
            f"127.0.0.1:{loopback.getsockname()[1]}",
            f"{own_address()}:{everywhere.getsockname()[1]}",
            "169.254.169.254:80",
        ]
        told = build(
            engine,
            "FROM atoll/base",
            "COPY try.py /try.py",
            f"RUN : {uuid4()}; python3 /try.py {' '.join(places)}",
            f"RUN : {uuid4()}; pip3 download --no-deps --no-cache-dir -d /tmp/x six && rm -r /tmp/x",
        )
    assert told[-1]["type"] == "result", told[-1]
    lines = [event.get("message") for event in told]
    assert [f"refused {place}" in lines for place in places] == [True] * 3


def own_address() -> str:
    """An address of this host on the way out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        address: str = probe.getsockname()[0]
        return address


def test_the_slot_of_a_build_is_gone_afterwards_also_of_one_that_was_cut(
    engine: EngineProcess,
) -> None:
    build(engine, "FROM atoll/base", f"RUN : {uuid4()}")
    assert slots(engine) == []
    with (
        engine.client() as client,
        client.stream(
            "POST",
            f"/v2/images/build?tag={TAG}-never",
            content=context("FROM atoll/base", f"RUN echo {uuid4()}; sleep 60"),
        ) as answer,
    ):
        for line in answer.iter_lines():
            if "sleep 60" in line:
                break
        assert len(slots(engine)) == 1
        engine.end(signal.SIGKILL)
    engine.__init__(engine.state_dir, level="container")  # type: ignore[misc]
    assert slots(engine) == []


def test_a_caller_that_leaves_ends_the_steps_of_its_build(engine: EngineProcess) -> None:
    mark = str(uuid4())
    with (
        engine.client() as client,
        client.stream(
            "POST",
            f"/v2/images/build?tag={TAG}-left",
            content=context("FROM atoll/base", f"RUN sleep 60; echo {mark}"),
        ) as answer,
    ):
        lines = answer.iter_lines()  # held: its end closes the connection
        assert any("sleep 60" in line for line in lines)
        eventually(lambda: running(mark))
    eventually(lambda: not running(mark) and slots(engine) == [])
    eventually(lambda: not list(engine.state_dir.glob("context-*")))


def running(mark: str) -> list[str]:
    """Processes of this host with *mark* in their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if mark.encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


def slots(engine: EngineProcess) -> list[str]:
    aliases = [path.read_text().strip() for path in Path("/sys/class/net").glob("atl*/ifalias")]
    return [alias for alias in aliases if alias.startswith(engine.hello["engineId"])]
