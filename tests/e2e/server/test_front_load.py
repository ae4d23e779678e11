"""One preview under load beside another sandbox that is used meanwhile."""

import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import pytest

from e2e.hosts import SANDBOXES, Host, run

pytestmark = pytest.mark.e2e

CONNECTIONS = 2_000


@pytest.fixture
def host() -> Iterator[Host]:
    if os.geteuid():
        pytest.skip("needs root")
    found = Host()
    yield found
    found.close()


def test_two_thousand_connections_to_one_preview_do_not_hurt_others(host: Host) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8_192), hard))
    engine = host.start("--port", "0")
    port = urlsplit(engine.hello["url"]).port
    with engine.client() as client, ExitStack() as stack:
        names = []
        for id in ("crowded", "quiet"):
            box = f"{SANDBOXES}/{id}"
            serve = {"command": "python3 -m http.server 8080", "processId": "web"}
            assert client.post(f"{box}/processes", json=serve).status_code == 200
            waited = client.post(f"{box}/ports/wait", json={"ports": [8080], "wait": 30_000})
            assert waited.json() == {"missing": []}
            told = client.post(f"{box}/ports", json={"port": 8080}).json()
            names.append(urlsplit(told["url"]).hostname)
        crowded, quiet = names
        head = f"GET / HTTP/1.1\r\nHost: {crowded}\r\n\r\n".encode()
        for _ in range(CONNECTIONS):
            visitor = stack.enter_context(socket.socket())
            with suppress(BlockingIOError):
                visitor.settimeout(10)
                visitor.connect(("127.0.0.1", port))
                visitor.sendall(head)
        slowest = 0.0
        for _ in range(20):
            start = time.monotonic()
            with socket.create_connection(("127.0.0.1", port), timeout=20) as visitor:
                visitor.sendall(head.replace(str(crowded).encode(), str(quiet).encode()))
                assert visitor.recv(15) == b"HTTP/1.1 200 OK"
            assert run(client, f"{SANDBOXES}/quiet", "echo", "fine")["stdout"] == "fine\n"
            slowest = max(slowest, time.monotonic() - start)
        assert slowest < 10
        for id in ("crowded", "quiet"):
            client.delete(f"{SANDBOXES}/{id}")
