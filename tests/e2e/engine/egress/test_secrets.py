"""A secret of a real sandbox: its programs use it by the tools they have, and have it nowhere."""

import base64
from pathlib import Path

import pytest

from e2e.engine.egress.conftest import Node
from e2e.engine.egress.test_gateway import log, reached
from e2e.hosts import SANDBOXES

pytestmark = pytest.mark.e2e

VALUE = "canary-5f1c0a-value"
SECRET = "/v2/namespaces/N/secrets/KEY"

PYTHON = (
    "import os, urllib.request as r; q = r.Request('https://allowed.test/py', headers="
    "{'X-Key': os.environ['API_KEY']}); print(r.urlopen(q, timeout=5).status)"
)
HUNT = "grep -aslr canary-5f1c[0]a /proc/[0-9]*/environ /proc/[0-9]*/cmdline /etc /run /tmp /root || true"


@pytest.fixture
def using(node: Node) -> Node:
    kept = node.client.put(SECRET, json={"value": VALUE, "hosts": ["*.test"]})
    assert kept.status_code == 200, kept.text
    options = {"secrets": {"API_KEY": {"name": "KEY", "hosts": ["allowed.test"]}}}
    assert node.client.put(f"{SANDBOXES}/a", json=options).status_code == 200
    return node


def test_curl_and_python_use_a_secret_that_is_nowhere_inside(using: Node) -> None:
    node = using
    assert node.shell("a", "echo $API_KEY").startswith("atoll_secret_")
    header = '-H "X-Key: $API_KEY" -u "me:$API_KEY"'
    url = '"https://allowed.test/curl?key=$API_KEY"'
    shell = f"curl -s -m 9 -o /dev/null -w '%{{http_code}}' {header} {url}"
    assert node.shell("a", shell) == "200"
    assert node.shell("a", f'python3 -c "{PYTHON}"').strip() == "200"
    seen = {one.path: one.headers for one in node.web.requests}
    curl, basic = seen[f"/curl?key={VALUE}"], base64.b64encode(f"me:{VALUE}".encode()).decode()
    assert (curl["x-key"], curl["authorization"]) == (VALUE, f"Basic {basic}")
    assert seen["/py"]["x-key"] == VALUE
    assert node.shell("a", HUNT).strip() == ""
    assert VALUE not in str(log(node, "a"))


def test_no_other_host_gets_it_and_other_hosts_are_not_opened(using: Node) -> None:
    node = using
    shell = 'curl -s -m 9 -o /dev/null -w "%{http_code}" -H "X-Key: $API_KEY" http://other.test/'
    assert node.shell("a", shell) == "520"
    refused = [one for one in log(node, "a") if one["verdict"] == "refused"]
    assert refused[-1]["rule"] == "secret KEY is not for this host"
    assert reached(node, "a", "http://other.test/") == "200"
    # Closed: what curl sees is the server's own certificate, which the sandbox does not know.
    assert reached(node, "a", "https://other.test/") == ""
    assert reached(node, "a", "https://other.test/", "-k") == "200"
    assert VALUE not in str(node.web.requests)


def test_the_hosts_process_list_and_files_do_not_show_it(using: Node) -> None:
    node = using
    node.shell("a", "true")
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                assert VALUE.encode() not in (process / name).read_bytes()
            except OSError:
                continue
    for folder in ("egress", "run", "logs", "audit"):
        for file in (node.host.state_dir / folder).rglob("*"):
            if file.is_file() and "rootfs" not in file.parts:
                assert VALUE.encode() not in file.read_bytes(), file
    for file in node.host.state_dir.glob("atoll.db*"):
        assert VALUE.encode() not in file.read_bytes(), file
