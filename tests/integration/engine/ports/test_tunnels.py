"""Tunnels, with a stand-in for cloudflared that takes the same command line."""

import http.server
import json
import shutil
import signal
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from atoll.engine.ports import tunnels
from integration.server.engines import EngineProcess, eventually

BOX = "/v2/namespaces/N/sandboxes/box"

PROGRAM = """#!/usr/bin/python3
import json, os, sys, time
told = {{"argv": sys.argv[1:], "pid": os.getpid(), "uid": os.getuid(), "env": sorted(os.environ)}}
open("{folder}/told", "a").write(json.dumps(told) + "\\n")
print("2026-01-01T00:00:00Z INF Requesting new quick Tunnel on trycloudflare.com...", file=sys.stderr)
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
    for name in ("told", "fail", "end"):
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


def test_an_engine_that_is_killed_leaves_no_tunnel(
    tmp_path: Path, folder: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATOLL_TUNNEL_PROGRAM", str(folder / "cloudflared"))
    engine = EngineProcess(tmp_path / "other")
    with engine.client() as found:
        found.post(f"{BOX}/ports/{port}/tunnel", json={})
        (run,) = told(folder)
        engine.end(signal.SIGKILL)
        eventually(lambda: not runs(run["pid"]))
    again = EngineProcess(tmp_path / "other")
    with again.client() as found:
        assert found.get(f"{BOX}/tunnels").json()["tunnels"] == []
        assert len(found.get(f"{BOX}/ports").json()["ports"]) == 1
        found.delete(BOX)
    again.end()


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


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("INF |  https://a-b-c.trycloudflare.com  |", "https://a-b-c.trycloudflare.com"),
        ("INF Added CNAME app.example.com which will route", "https://app.example.com"),
        ("INF Requesting new quick Tunnel on trycloudflare.com...", None),
        ("ERR see https://developers.cloudflare.com/x", None),
    ],
)
def test_the_address_is_read_from_what_the_program_says(line: str, found: str | None) -> None:
    assert tunnels.address(line) == found
