"""Endpoints that the operator did not list: reached as the sandbox itself could, and only so.

The engine runs in a network of its own, behind which an internet of one server lies.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.engine.storage.test_mounts import AT, BOX, mount, sh
from e2e.hosts import Host
from e2e.network.world import world
from integration.buckets import Server, serving

pytestmark = pytest.mark.timeout(120)

PUBLIC = "20.20.20.20"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    if os.geteuid():
        pytest.skip("needs root")
    with world(tmp_path) as internet:
        enter = ["nsenter", f"--net={internet}"]
        add = [*enter, "ip", "addr", "add", f"{PUBLIC}/32", "dev", "lo"]
        subprocess.run(add, check=True)
        with serving(PUBLIC, enter) as found:
            yield found


def test_a_public_endpoint_needs_no_word_of_the_operator(server: Server, host: Host) -> None:
    engine = host.start()
    with engine.client() as client:
        answer = mount(client, server)
        assert answer.is_success, answer.text
        assert sh(client, f"echo x > {AT}/f; cat {AT}/f") == "x"
        offline = "/v2/namespaces/N/sandboxes/offline"
        client.put(offline, json={"enableInternet": False})
        refused = mount(client, server, url=offline)
        assert refused.json()["code"] == "BUCKET_MOUNT_ERROR", refused.text
        assert refused.json()["context"]["reason"] == "unreachable"
        client.delete(BOX)
