"""Sandboxes of a user who is not root, on a host with an internet: one policy for all levels."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import atoll.sync
import rootless
from atoll.errors import NotSupportedByRuntimeError
from e2e.engine.egress.test_gateway import WAYS_ROUND
from e2e.network import internet as net
from e2e.network.world import serve

pytestmark = pytest.mark.e2e


class Node:
    """A user's engine on a host that has an internet."""

    def __init__(self, lent: rootless.User, web: net.Internet) -> None:
        self.lent, self.web = lent, web
        self._running = ExitStack()
        self.start()

    def start(self, **settings: str) -> None:
        ready = self._running.enter_context(
            rootless.engine(
                self.lent,
                network_nameservers=net.RESOLVER,
                network_authorities=str(self.lent.home / "authority.pem"),
                **settings,
            )
        )
        self.pid = int(str(ready["pid"]))
        url = f"unix://{ready['socket']}"
        self.env: Any = self._running.enter_context(atoll.sync.connect(url))

    def stop(self) -> None:
        self._running.close()

    def box(self, id: str = "a", **options: Any) -> Any:
        return atoll.sync.get_sandbox(self.env.Sandbox, id, **options)

    @property
    def gateway(self) -> int:
        state = self.lent.home / ".local/state/atoll/egress/gateway.json"
        return int(json.loads(state.read_text())["pid"])


@pytest.fixture(scope="module")
def standing() -> Iterator[Node]:
    if os.geteuid():
        pytest.skip("needs root")
    with net.temporary() as web, rootless.user() as lent:
        shutil.copy(web.authority.path, lent.home / "authority.pem")
        made = Node(lent, web)
        yield made
        made.stop()


@pytest.fixture
def node(standing: Node) -> Iterator[Node]:
    """The module's node; sandbox "a" is fresh."""
    standing.web.requests.clear()
    standing.web.names.questions.clear()
    yield standing
    standing.box().destroy()


def reached(box: Any, url: str, options: str = "") -> str:
    """Return the status of an answer, "" where there is none."""
    shell = f"curl -s -m 5 -o /dev/null -w '%{{http_code}}' {options} '{url}' || true"
    return str(box.exec(shell).stdout).replace("000", "")


def test_everything_public_is_reached_and_nothing_else(node: Node) -> None:
    """Probes 11 and 12: metadata, private ranges, the host and its loopback."""
    box = node.box()
    for url in ("http://allowed.test/", f"http://{net.PUBLIC}/"):
        assert reached(box, url) == "200", url
    assert reached(box, "https://allowed.test/", "-k") == "200"
    with serve(None, 8_090), serve(None, 8_091, "127.0.0.1"):
        for url in ("http://rebound.test/", f"http://{net.METADATA}/", "http://10.9.9.9/",
                    "http://metadata.google.internal/", "http://private.test/",
                    f"http://{net.UPLINK}:8090/", "http://host.test:8090/",
                    "http://127.0.0.1:8091/", "http://loopback.test:8091/", "http://0.0.0.0:8090/",
                    f"http://[{net.PUBLIC6}]/", f"http://[{net.METADATA6}]/"):  # fmt: skip
            assert reached(box, url) == "", url


def test_a_neighbour_is_not_reached(node: Node) -> None:
    """All have the same address; each means itself by it."""
    box, other = node.box(), node.box("b")
    other.start_process("python3 -m http.server 8000").wait_for_port(8000)
    address = other.exec("hostname -i || true").stdout.split()[-1]
    assert reached(other, f"http://{address}:8000/") == "200"
    assert reached(box, f"http://{address}:8000/") == ""
    other.destroy()


def test_no_spelling_gets_round_a_list(node: Node) -> None:
    box = node.box()
    box.set_allowed_hosts(["allowed.test", "one.shared.test"])
    assert reached(box, "http://allowed.test/") == "200"
    for url in WAYS_ROUND:
        assert reached(box, url, "--noproxy '*'") in {"", "520"}, url
    assert reached(box, f"http://{net.PUBLIC}/", "-H 'Host: denied.test'") in {"", "520"}
    assert (
        reached(box, "https://two.shared.test/", f"-k --resolve two.shared.test:443:{net.SHARED}")
        == ""
    )
    assert {seen.host for seen in node.web.requests} == {"allowed.test"}


def test_without_internet_not_even_a_name_gets_out(node: Node) -> None:
    """Probe 13."""
    box = node.box(enable_internet=False)
    assert box.network_policy().mode == "closed"
    assert box.exec("getent hosts secret.evil.test").exit_code != 0
    for server in ("8.8.8.8", net.RESOLVER):
        ask = f"import socket; s=socket.socket(2, 2); s.settimeout(1); s.sendto(b'x'*20, ('{server}', 53))"
        assert "PermissionError" in box.exec(["python3", "-c", ask]).stderr
    assert reached(box, f"http://{net.PUBLIC}/") == ""
    question = r"b'\x12\x34\x01\0\0\1\0\0\0\0\0\0\6direct\4evil\4test\0\0\1\0\1'"
    ask = "import socket; s=socket.socket(2, 2); s.settimeout(5); s.connect(('127.0.0.1', 65053)); "
    told = box.exec(["python3", "-c", f"{ask}s.send({question}); print(s.recv(512)[3] & 15)"])
    assert told.stdout == "3\n", "the gateway's own port is answered: no such name"
    assert not node.web.names.asked("evil.test")


def test_root_inside_cannot_change_its_network(node: Node) -> None:
    """The namespace belongs to a user namespace above its own."""
    box = node.box()
    down = "import fcntl, socket, struct; s = socket.socket(); "
    down += "fcntl.ioctl(s, 0x8914, struct.pack('16sh22x', b'lo', 0))"
    assert "PermissionError" in box.exec(["python3", "-c", down]).stderr
    for path in ("ip_forward", "ip_unprivileged_port_start"):
        assert box.exec(f"echo 1 >/proc/sys/net/ipv4/{path}").exit_code != 0
    bind = "import socket; socket.create_server(('127.0.0.1', 80)); print('low')"
    assert box.exec(["python3", "-c", bind]).stdout == "low\n"


@pytest.mark.slow
def test_a_policy_outlives_engine_and_gateway(node: Node) -> None:
    box = node.box()
    box.set_allowed_hosts(["allowed.test"])
    assert reached(box, "http://allowed.test/") == "200"
    os.kill(node.gateway, signal.SIGKILL)
    assert reached(box, "http://allowed.test/") == "200", "it waits for the next gateway"
    for pid in (node.pid, node.gateway):
        os.kill(pid, signal.SIGKILL)
    node.stop()
    node.start()
    box = node.box()
    assert reached(box, "http://allowed.test/") == "200"
    assert reached(box, f"http://{net.OTHER}/") in {"", "520"}


def test_the_gateway_has_no_rights_and_sees_no_file_of_its_user(node: Node) -> None:
    node.box().set_allowed_hosts(["allowed.test"])
    assert reached(node.box(), "http://allowed.test/") == "200"
    proc = Path(f"/proc/{node.gateway}")
    status = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines())
    assert {status[f"Cap{name}"] for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    assert status["Uid"].split() == [str(rootless.UID)] * 4
    assert all(name == "keys" or name.endswith(".jsonl") for name in os.listdir(proc / "root"))
    assert os.readlink(proc / "ns/user") != os.readlink("/proc/self/ns/user")


def test_https_is_told_by_its_name(node: Node) -> None:
    box = node.box()
    box.set_denied_hosts(["denied.test"])
    assert reached(box, "https://allowed.test/", "-k") == "200"
    assert reached(box, "https://denied.test/", "-k") == ""


def test_what_is_used_is_counted_and_told(node: Node) -> None:
    box = node.box()
    assert reached(box, "http://allowed.test/") == "200"
    with box.network_log() as told:
        found = {(event.protocol, event.verdict, event.host) for event in told}
    assert {("dns", "allowed", "allowed.test"), ("tcp", "allowed", "allowed.test")} <= found
    metrics = box.metrics()
    assert metrics.bytes_up > 50
    assert metrics.bytes_down > 50


@pytest.mark.slow
def test_without_nft_sandboxes_have_loopback_and_wishes_are_refused(node: Node) -> None:
    """Never a weaker policy in silence."""
    node.stop()
    for pid in rootless.processes():
        os.kill(pid, signal.SIGKILL)
    site = next((node.lent.home / "environment").glob("lib/python*/site-packages"))
    patch = site / "without_nft.pth"
    patch.write_text(
        "import os; from atoll.network.rootless import networks; "
        "networks.TOOLS = {'no-such-nft': 'nftables'}\n"
    )
    try:
        node.start()
        box = node.box()
        assert box.exec("true").exit_code == 0
        assert (box.network_policy().mode, box.network_policy().enable_internet) == (
            "closed",
            False,
        )
        assert reached(box, f"http://{net.PUBLIC}/") == ""
        with pytest.raises(NotSupportedByRuntimeError) as raised:
            box.set_allowed_hosts(["allowed.test"])
        assert "atoll doctor" in str(raised.value.suggestion)
        with pytest.raises(NotSupportedByRuntimeError, match="loopback only"):
            node.box("wish", enable_internet=True).exec("true")
        node.box("wish").destroy()
        box.destroy()
    finally:
        node.stop()
        patch.unlink()
        node.start()
