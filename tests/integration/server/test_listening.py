"""Many connections at once, as strangers make them."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from integration.server.engines import EngineProcess

IDLE = 5_000


@pytest.fixture
def _many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < IDLE + 1_000:
        pytest.skip("this process may not have enough open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (IDLE + 1_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def asked(url: str) -> tuple[int, float]:
    began = time.monotonic()
    with httpx2.Client(timeout=20) as client:
        return client.get(f"{url}/v2/version").status_code, time.monotonic() - began


@pytest.mark.usefixtures("_many_files")
def test_thousands_of_idle_connections_keep_nobody_out(tmp_path: Path) -> None:
    engine = EngineProcess(tmp_path / "state", "--port", "0")
    url = engine.hello["url"]
    address = (urlsplit(url).hostname, urlsplit(url).port)
    try:
        with ExitStack() as stack:
            for number in range(IDLE):
                held = stack.enter_context(socket.create_connection(address, timeout=20))
                held.sendall(b"GET /v2/version HTTP/1.1\r\nx: " if number % 2 else b"")
            found = [asked(url) for _ in range(5)]
            with engine.client() as client:
                assert client.get("/v2/version").is_success
            assert resident_mib(engine.process.pid) < 400
        assert [status for status, _ in found] == [200] * 5
        assert min(seconds for _, seconds in found) < 1.0
        assert asked(url)[0] == 200
    finally:
        assert engine.end() == 0


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)
