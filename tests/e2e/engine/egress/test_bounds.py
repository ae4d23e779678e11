"""The gateway has memory of its own: who makes it want more ends it, for a moment, and nothing else."""

import os
import signal
from pathlib import Path

import pytest

from e2e.engine.egress.conftest import Node
from e2e.engine.egress.test_gateway import gateway, reached
from integration.server.engines import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SANDBOXES = ("a", "b", "c")

HUNGRY = """
import socket, time
held = []
for _ in range(4):  # together what a sandbox may have held
    one = socket.create_connection(("203.0.113.7", 80))
    one.sendall(b"PUT / HTTP/1.1\\r\\nHost: 203.0.113.7\\r\\nContent-Length: 8000000\\r\\n\\r\\n")
    one.sendall(bytes(7_999_999))
    held.append(one)
time.sleep(30)
"""


def test_a_sandbox_that_makes_the_gateway_large_ends_it_and_nothing_else(node: Node) -> None:
    node.engine.end(signal.SIGKILL)
    os.kill(gateway(node), signal.SIGKILL)
    node.start(ATOLL_NETWORK_GATEWAY_MEMORY_MIB="64")
    for id in SANDBOXES:
        assert reached(node, id, "http://allowed.test/") == "200"
    first = gateway(node)
    assert "/egress/user\n" in Path(f"/proc/{first}/cgroup").read_text()
    config = {"egress": {"outbound": True}}
    assert node.client.put("/v2/namespaces/N", json=config).status_code == 200
    for id in SANDBOXES:
        node.shell(id, f"setsid python3 -c '{HUNGRY}' >/dev/null 2>&1 &")
    eventually(lambda: gateway(node) != first, 60)
    assert node.client.put("/v2/namespaces/N", json={}).status_code == 200
    eventually(lambda: reached(node, "a", "http://allowed.test/") == "200", 60)
    eventually(lambda: reached(node, "b", "http://allowed.test/") == "200", 60)
    assert "/egress/user\n" in Path(f"/proc/{gateway(node)}/cgroup").read_text()
