"""Tunnels, with a stand-in for cloudflared that takes the same command line."""

import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from atoll.engine.ports import cloudflared, tunnels
from integration.server.engines import EngineProcess, eventually

BOX = "/v2/namespaces/N/sandboxes/box"

PROGRAM = """#!/usr/bin/python3
import json, os, sys, time
told = {{"argv": sys.argv[1:], "pid": os.getpid(), "uid": os.getuid(), "env": sorted(os.environ)}}
told["status"] = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
open("{folder}/told", "a").write(json.dumps(told) + "\\n")
print("2026-01-01T00:00:00Z INF Requesting new quick Tunnel on trycloudflare.com...", file=sys.stderr)
while os.path.exists("{folder}/silent"):
    time.sleep(0.02)
if os.path.exists("{folder}/fail"):
    sys.exit("2026-01-01T00:00:00Z ERR failed to request quick Tunnel: no network")
if "--name" in sys.argv:
    print("INF Added CNAME app.example.com which will route to this tunnel", file=sys.stderr)
else:
    print("INF |  https://some-words-here.trycloudflare.com   |", file=sys.stderr, flush=True)
while not os.path.exists("{folder}/end"):
    time.sleep(0.02)
"""


class Inside(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(dict(self.headers)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Inside) as server:
        threading.Thread(target=server.serve_forever).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    """A folder that nobody can use: the directories of the test run are its user's alone."""
    found = Path(tempfile.mkdtemp(prefix="atoll-tunnels-", dir="/tmp"))
    found.chmod(0o777)
    program = found / "cloudflared"
    program.write_text(PROGRAM.format(folder=found))
    program.chmod(0o755)
    yield found
    shutil.rmtree(found)


@pytest.fixture
def folder(shared: Path) -> Path:
    for name in ("told", "fail", "end", "silent"):
        (shared / name).unlink(missing_ok=True)
    return shared


@pytest.fixture(scope="module")
def engine(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATOLL_TUNNEL_PROGRAM", str(shared / "cloudflared"))
        found = EngineProcess(tmp_path_factory.mktemp("tunnels") / "state")
    yield found
    assert found.end() == 0
    eventually(lambda: not alive(shared))


@pytest.fixture
def client(engine: EngineProcess, folder: Path) -> Iterator[httpx2.Client]:
    with engine.client() as found:
        yield found
        found.delete(BOX)
    eventually(lambda: not alive(folder))


def told(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "told").read_text().splitlines()]


def alive(folder: Path) -> bool:
    if not (folder / "told").exists():
        return False
    return any(runs(one["pid"]) for one in told(folder))


def runs(pid: int) -> bool:
    """Return whether the process has not ended; nobody may be there to reap it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_tunnel_leads_to_its_port_and_nowhere_else(
    client: httpx2.Client, folder: Path, port: int
) -> None:
    opened = client.post(f"{BOX}/ports/{port}/tunnel", json={}).json()
    assert opened == {
        "port": port,
        "url": "https://some-words-here.trycloudflare.com",
        "name": None,
    }
    assert client.get(f"{BOX}/tunnels").json()["tunnels"] == [opened]
    assert client.post(f"{BOX}/ports/{port}/tunnel", json={}).json() == opened
    (run,) = told(folder)
    assert run["argv"][:3] == ["tunnel", "--no-autoupdate", "--url"]
    assert "ATOLL_TUNNEL_PROGRAM" not in run["env"]
    origin = run["argv"][3]
    asked = urllib.request.Request(
        f"{origin}/v2/version",
        headers={"Host": "localhost", "X-Forwarded-For": "9.8.7.6", "X-Forwarded-Proto": "https"},
    )
    headers = json.loads(urllib.request.urlopen(asked).read())
    assert headers["X-Original-URL"] == "https://localhost/v2/version"
    assert headers["X-Forwarded-For"] == "9.8.7.6"
    client.delete(f"{BOX}/ports/{port}/tunnel")
    client.delete(f"{BOX}/ports/{port}/tunnel")
    assert client.get(f"{BOX}/tunnels").json()["tunnels"] == []
    eventually(lambda: not alive(folder))


def test_the_bridge_has_the_same_tunnels(client: httpx2.Client, port: int) -> None:
    box = client.post("/v1/sandbox").json()["id"]
    opened = client.post(f"/v1/sandbox/{box}/tunnel/{port}")
    assert opened.status_code == 200
    assert opened.json()["hostname"] == "some-words-here.trycloudflare.com"
    assert client.delete(f"/v1/sandbox/{box}/tunnel/{port}").status_code == 204
    assert client.delete(f"/v1/sandbox/{box}").status_code == 204


def test_a_named_tunnel_has_the_name_of_its_account(
    client: httpx2.Client, folder: Path, port: int
) -> None:
    opened = client.post(f"{BOX}/ports/{port}/tunnel", json={"name": "app"}).json()
    assert (opened["url"], opened["name"]) == ("https://app.example.com", "app")
    assert told(folder)[0]["argv"][2:4] == ["--name", "app"]
    wrong = client.post(f"{BOX}/ports/{port}/tunnel", json={"name": "--config=/x"})
    assert wrong.json()["code"] == "VALIDATION_FAILED"


def test_a_program_that_ends_takes_its_tunnel_along_and_is_started_again(
    client: httpx2.Client, folder: Path, port: int
) -> None:
    client.post(f"{BOX}/ports/{port}/tunnel", json={})
    (folder / "end").touch()
    eventually(lambda: client.get(f"{BOX}/tunnels").json()["tunnels"] == [])
    (folder / "end").unlink()
    assert client.post(f"{BOX}/ports/{port}/tunnel", json={}).status_code == 200
    assert len(told(folder)) == 2


def test_what_the_program_says_is_in_the_error(
    client: httpx2.Client, folder: Path, port: int
) -> None:
    (folder / "fail").touch()
    answer = client.post(f"{BOX}/ports/{port}/tunnel", json={})
    assert (answer.status_code, answer.json()["code"]) == (500, "TUNNEL_ERROR")
    assert "no network" in answer.json()["context"]["output"]


def test_a_destroyed_sandbox_has_no_tunnel(client: httpx2.Client, folder: Path, port: int) -> None:
    client.post(f"{BOX}/ports/{port}/tunnel", json={})
    client.delete(BOX)
    eventually(lambda: not alive(folder))


@pytest.mark.skipif(os.geteuid() != 0, reason="root has something to give up")
@pytest.mark.parametrize(("name", "uid"), [(None, 65534), ("app", 0)])
def test_the_program_has_none_of_roots_rights(
    client: httpx2.Client, folder: Path, port: int, name: str | None, uid: int
) -> None:
    """It reads what the internet sends. A named one stays root for the account's files alone."""
    client.post(f"{BOX}/ports/{port}/tunnel", json={"name": name} if name else {})
    (run,) = told(folder)
    assert run["uid"] == uid
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(run["status"][kind], 16) == 0, kind
    assert run["status"]["NoNewPrivs"].strip() == "1"


class Host:
    """One engine after the other on the same state, with the stand-in."""

    def __init__(self, state: Path, folder: Path) -> None:
        self._state = state
        self._program = str(folder / "cloudflared")
        self.engine = self.start()

    def start(self, **settings: str) -> EngineProcess:
        settings["ATOLL_SERVER_TUNNEL_PROGRAM"] = self._program
        self.engine = EngineProcess(self._state, settings=settings)
        return self.engine

    def ask(self, method: str, path: str, **how: Any) -> Any:
        with self.engine.client() as client:
            return client.request(method, BOX + path, **how).raise_for_status().json()

    def tunnels(self) -> list[Any]:
        return list(self.ask("GET", "/tunnels")["tunnels"])

    def ended(self) -> list[str]:
        with self.engine.client() as client:
            lines = client.get(f"{BOX}/events").raise_for_status().text.splitlines()
        events = [json.loads(line) for line in lines]
        return [event["reason"] for event in events if event["type"] == tunnels.ENDED]


@pytest.fixture
def host(tmp_path: Path, folder: Path) -> Iterator[Host]:
    found = Host(tmp_path / "other", folder)
    yield found
    if found.engine.process.poll() is not None:
        found.start()
    found.ask("DELETE", "")
    assert found.engine.end() == 0
    assert not alive(folder)
    assert not list((tmp_path / "other" / "tunnels").iterdir())


def local_port(run: dict[str, Any]) -> int:
    return int(run["argv"][-1].rpartition(":")[2])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_tunnel_outlives_its_engine(host: Host, folder: Path, port: int, number: int) -> None:
    opened = host.ask("POST", f"/ports/{port}/tunnel", json={})
    (run,) = told(folder)
    host.engine.end(number)
    assert runs(run["pid"])
    host.start()
    assert host.tunnels() == [opened]
    asked = urllib.request.Request(run["argv"][-1], headers={"Host": "somewhere"})
    assert json.loads(urllib.request.urlopen(asked).read())["X-Sandbox-Name"] == "box"
    assert host.ask("POST", f"/ports/{port}/tunnel", json={}) == opened
    assert told(folder) == [run]
    host.ask("DELETE", f"/ports/{port}/tunnel")
    assert not runs(run["pid"])
    host.engine.end(signal.SIGKILL)
    host.start()
    assert host.tunnels() == []


def test_nobody_takes_the_place_of_an_engine_that_is_gone(
    host: Host, folder: Path, port: int
) -> None:
    """The tunnel still leads visitors there: who could listen would get what is sent to the sandbox."""
    host.ask("POST", f"/ports/{port}/tunnel", json={})
    (run,) = told(folder)
    host.engine.end(signal.SIGKILL)
    for address in ("127.0.0.1", "0.0.0.0"):
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="in use"):
                other.bind((address, local_port(run)))


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_another_user_cannot_share_the_port_either(host: Host, folder: Path, port: int) -> None:
    host.ask("POST", f"/ports/{port}/tunnel", json={})
    (run,) = told(folder)
    host.engine.end(signal.SIGKILL)
    script = (
        "import os, socket, sys; os.setuid(12345); s = socket.socket()\n"
        "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n"
        "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
        "s.bind((sys.argv[1], int(sys.argv[2]))); s.listen()"
    )
    for address in ("127.0.0.1", "0.0.0.0"):
        words = [sys.executable, "-c", script, address, str(local_port(run))]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert "Address already in use" in done.stderr


def test_a_program_that_ended_meanwhile_is_told_of_by_an_event(
    host: Host, folder: Path, port: int
) -> None:
    opened = host.ask("POST", f"/ports/{port}/tunnel", json={})
    (run,) = told(folder)
    host.engine.end(signal.SIGKILL)
    os.kill(run["pid"], signal.SIGKILL)
    eventually(lambda: not runs(run["pid"]))
    host.start()
    assert host.tunnels() == []
    assert host.ended() == [f"{opened['url']}: the program ended"]
    assert len(host.ask("GET", "/ports")["ports"]) == 1


def test_a_program_that_ends_is_told_of_by_an_event(host: Host, folder: Path, port: int) -> None:
    host.ask("POST", f"/ports/{port}/tunnel", json={})
    os.kill(told(folder)[0]["pid"], signal.SIGKILL)
    eventually(lambda: host.tunnels() == [])
    eventually(lambda: len(host.ended()) == 1)


@pytest.mark.parametrize(("point", "kept"), [("tunnel.started", 0), ("tunnel.recorded", 1)])
def test_an_engine_that_dies_while_it_starts_a_tunnel_leaves_none_that_nobody_knows(
    host: Host, folder: Path, port: int, point: str, kept: int
) -> None:
    host.ask("POST", "/ports", json={"port": port})
    host.engine.end()
    host.start(ATOLL_FAULTS_POINT=point)
    with pytest.raises(httpx2.TransportError):
        host.ask("POST", f"/ports/{port}/tunnel", json={})
    assert host.engine.wait() == -signal.SIGKILL
    host.start()
    assert len(host.tunnels()) == kept
    if not kept:
        eventually(lambda: not alive(folder))
    assert host.ended() == []


def test_an_engine_that_dies_while_it_destroys_leaves_no_tunnel(
    host: Host, folder: Path, port: int
) -> None:
    host.ask("POST", f"/ports/{port}/tunnel", json={})
    host.engine.end()
    host.start(ATOLL_FAULTS_POINT="destroy.recorded")
    with pytest.raises(httpx2.TransportError):
        host.ask("DELETE", "")
    host.engine.wait()
    assert alive(folder)
    host.start()
    assert not alive(folder)
    assert host.tunnels() == []


def test_who_revokes_a_port_ends_its_tunnel(host: Host, folder: Path, port: int) -> None:
    host.ask("POST", f"/ports/{port}/tunnel", json={})
    host.ask("DELETE", f"/ports/{port}")
    assert host.tunnels() == []
    assert not alive(folder)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(told(folder)[0]["argv"][-1])


@pytest.mark.parametrize("path", ["", "/ports/{port}"], ids=["destroyed", "revoked"])
def test_a_tunnel_that_is_starting_holds_nobody_up(
    host: Host, folder: Path, port: int, path: str
) -> None:
    """An address takes up to a minute; the sandbox may be destroyed in that time."""
    (folder / "silent").touch()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(host.ask, "POST", f"/ports/{port}/tunnel", json={})
        eventually((folder / "told").exists)
        began = time.monotonic()
        host.ask("DELETE", path.format(port=port))
        assert time.monotonic() - began < cloudflared.START / 4
        assert "500" in str(waiting.exception())
    assert not alive(folder)


def test_fifty_callers_at_once_have_one_tunnel(host: Host, folder: Path, port: int) -> None:
    with ThreadPoolExecutor(50) as pool:
        calls = [pool.submit(host.ask, "POST", f"/ports/{port}/tunnel", json={}) for _ in range(50)]
        assert len({call.result()["url"] for call in calls}) == 1
    assert len(told(folder)) == 1


def test_without_the_program_there_is_a_typed_error(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATOLL_TUNNEL_PROGRAM", "no-such-program")
    engine = EngineProcess(tmp_path / "state")
    with engine.client() as client:
        answer = client.post(f"{BOX}/ports/{port}/tunnel", json={})
        assert (answer.status_code, answer.json()["code"]) == (501, "TUNNEL_NOT_AVAILABLE")
        client.delete(BOX)
    engine.end()
