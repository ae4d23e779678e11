import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from integration.server.engines import EngineProcess, eventually

BOX = "/v2/namespaces/N/sandboxes/box"
SLOW = {"command": ["sh", "-c", "for i in $(seq 12); do echo $i; sleep 0.2; done"]}
ALL = "".join(f"{n}\n" for n in range(1, 13))


class Engines:
    """Starts engines on one state directory and ends whatever is left of them."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self._started: list[EngineProcess] = []

    def start(self, *flags: str) -> EngineProcess:
        self._started.append(EngineProcess(self.state_dir, *flags))
        return self._started[-1]

    def close(self) -> None:
        for engine in self._started:
            engine.end(signal.SIGKILL)
        last = self.start("--local")
        assert last.hello["socket"]
        with socket.socket(socket.AF_UNIX) as lease:
            lease.connect(str(self.state_dir / "lease.sock"))
            lease.recv(1 << 12)
            with last.client() as client:
                client.post(BOX + "/stop")
        assert last.wait() == 0


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[Engines]:
    found = Engines(tmp_path / "state")
    yield found
    found.close()


def run(client: httpx2.Client, *command: str) -> dict[str, Any]:
    answer = client.post(BOX + "/exec", json={"command": list(command)})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_an_engine_that_is_told_to_stop_leaves_its_sandboxes_running(engines: Engines) -> None:
    first = engines.start()
    with first.client() as client:
        run(client, "sh", "-c", "echo kept > file")
    assert first.end() == 0
    with engines.start().client() as client:
        assert run(client, "cat", "file")["stdout"] == "kept\n"
        assert client.get(BOX).json()["generation"] == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_command_and_its_output_outlive_the_engine(engines: Engines, number: int) -> None:
    first = engines.start()
    seen = bytearray()

    def read() -> None:
        headers = {"idempotency-key": "k1", "accept": "application/x-ndjson"}
        with (
            first.client() as client,
            suppress(httpx2.TransportError),
            client.stream("POST", BOX + "/exec", json=SLOW, headers=headers) as answer,
        ):
            for chunk in answer.iter_raw():
                seen.extend(chunk)

    reading = threading.Thread(target=read)
    reading.start()
    eventually(lambda: b"Mwo=" in seen)  # base64 of the third line
    first.end(number)
    reading.join()
    assert b"exited" not in seen
    with engines.start().client() as client:
        answer = client.get(BOX + "/operations/k1")
    assert (answer.json()["stdout"], answer.json()["exitCode"]) == (ALL, 0)


def test_a_call_under_way_ends_before_the_engine_does(engines: Engines) -> None:
    first = engines.start()
    with first.client() as client:
        folder = Path(run(client, "pwd")["stdout"].strip())
    results: list[dict[str, Any]] = []

    def ask() -> None:
        with first.client() as client:
            results.append(run(client, "sh", "-c", "touch began; sleep 2; echo done"))

    asking = threading.Thread(target=ask)
    asking.start()
    eventually((folder / "began").exists)
    assert first.end() == 0
    asking.join()
    assert [result["stdout"] for result in results] == ["done\n"]


def test_a_wait_does_not_hold_up_a_stop(engines: Engines) -> None:
    """It may have years left, and changes nothing."""
    first = engines.start()

    def wait() -> httpx2.Response:
        with first.client() as client:
            return client.post(BOX + "/ports/wait", json={"ports": [1], "wait": 600_000})

    with ThreadPoolExecutor() as pool, first.client() as client:
        waiting = pool.submit(wait)
        eventually(lambda: client.get(BOX).json().get("state") == "running")
        began = time.monotonic()
        assert first.end() == 0
        assert time.monotonic() - began < 10
        told = waiting.result()
    assert (told.status_code, told.json()["code"]) == (503, "CONTAINER_NOT_READY")


def test_a_wait_for_a_process_does_not_hold_up_a_stop(engines: Engines) -> None:
    """Also in the middle of a probe that is not answered."""
    first = engines.start()
    with socket.create_server(("127.0.0.1", 0)) as server, first.client() as client:
        processes = BOX + "/processes"
        assert (
            client.post(processes, json={"command": "sleep 60", "processId": "p"}).status_code
            == 200
        )
        port = {"port": server.getsockname()[1], "wait": 60_000}
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(client.post, processes + "/p/port", json=port)
            server.settimeout(10)
            with server.accept()[0]:
                began = time.monotonic()
                assert first.end() == 0
                assert time.monotonic() - began < 10  # drain_timeout is 30
                told = waiting.result()
    assert (told.status_code, told.json()["code"]) == (503, "CONTAINER_NOT_READY")


def test_a_command_without_an_id_ends_with_the_engine_that_served_it(
    engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can attach to it again, so nobody would read what it does."""
    monkeypatch.setenv("ATOLL_DRAIN_TIMEOUT", "0.1")
    first = engines.start()
    with first.client() as client:
        folder = Path(run(client, "pwd")["stdout"].strip())

    def read() -> None:
        slow = {"command": ["sh", "-c", "echo $$ > began; sleep 8; touch ended"]}
        with first.client() as client, suppress(httpx2.TransportError):
            client.post(BOX + "/exec", json=slow)

    reading = threading.Thread(target=read)
    reading.start()
    eventually((folder / "began").exists)
    assert first.end() == 0
    reading.join()
    eventually(lambda: not Path("/proc", (folder / "began").read_text().strip()).exists(), 1.5)
    assert not (folder / "ended").exists()


def test_a_second_engine_on_the_same_directory_is_refused(engines: Engines) -> None:
    first = engines.start()
    second = engines.start()
    assert second.hello["error"]["code"] == "RESOURCE_BUSY"
    assert str(first.process.pid) in second.hello["error"]["message"]
    assert second.wait() != 0
    assert "Traceback" not in second.log
    with first.client() as client:
        assert client.get("/health").json() == {"ok": True}


def test_a_port_that_is_taken_is_a_clear_error(engines: Engines) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        engine = engines.start("--port", str(port))
        assert engine.hello["error"]["code"] == "PORT_IN_USE"
        assert str(port) in engine.hello["error"]["message"]
        assert engine.wait() != 0
    assert "Traceback" not in engine.log


def test_tcp_answers_this_machine_only(engines: Engines) -> None:
    engine = engines.start("--port", "0")
    url = engine.hello["url"]
    assert httpx2.get(url + "/v2/version").status_code == 200
    evil = httpx2.get(url + "/v2/version", headers={"host": "evil.example"})
    assert evil.json()["code"] == "FORBIDDEN"
    foreign = httpx2.get(url + "/v2/version", headers={"origin": "http://evil.example"})
    assert foreign.json()["code"] == "FORBIDDEN"


def test_the_sockets_are_closed_to_others(engines: Engines) -> None:
    engine = engines.start()
    for name in ("engine.sock", "lease.sock"):
        assert (engine.state_dir / name).stat().st_mode & 0o777 == 0o600
    assert engine.state_dir.stat().st_mode & 0o777 == 0o700


def test_a_private_engine_ends_with_its_last_lease_and_sandboxes_sleep(engines: Engines) -> None:
    engine = engines.start("--local")
    with socket.socket(socket.AF_UNIX) as lease:
        lease.connect(str(engine.state_dir / "lease.sock"))
        assert b"engineId" in lease.recv(1 << 12)
        with engine.client() as client:
            run(client, "true")
    assert engine.wait() == 0
    with engines.start().client() as client:
        assert client.get(BOX).json()["state"] == "stopped"


def test_a_private_engine_leaves_running_what_it_only_found(engines: Engines) -> None:
    """A look at the list after a stop of the engine must not end anybody's work."""
    first = engines.start()
    with first.client() as client:
        run(client, "true")
    first.end()
    reader = engines.start("--local")
    with socket.socket(socket.AF_UNIX) as lease:
        lease.connect(str(reader.state_dir / "lease.sock"))
        lease.recv(1 << 12)
        with reader.client() as client:
            assert client.get(BOX).json()["state"] == "running"
    began = time.monotonic()
    assert reader.wait() == 0
    assert time.monotonic() - began < 2
    with engines.start().client() as client:
        found = client.get(BOX).json()
    assert (found["state"], found["generation"]) == ("running", 1)


def test_an_engine_to_stay_waits_for_a_private_one_that_is_leaving(engines: Engines) -> None:
    """A verb that reads holds the lock for a moment, and a service must not fail for that."""
    first = engines.start("--local")
    with socket.socket(socket.AF_UNIX) as lease:
        lease.connect(str(first.state_dir / "lease.sock"))
        lease.recv(1 << 12)
    second = engines.start()
    assert second.hello["pid"] == second.process.pid
    assert first.wait() == 0


def test_a_private_engine_waits_for_the_one_that_is_leaving(engines: Engines) -> None:
    first = engines.start("--local")
    lease = socket.socket(socket.AF_UNIX)
    lease.connect(str(first.state_dir / "lease.sock"))
    lease.recv(1 << 12)
    with first.client() as client:
        run(client, "true")
    lease.close()
    eventually(lambda: '"stopping"' in first.log)  # before that, the first still hands out leases
    first.process.send_signal(signal.SIGSTOP)
    with ThreadPoolExecutor() as pool:
        starting = pool.submit(engines.start, "--local")
        time.sleep(1)
        first.process.send_signal(signal.SIGCONT)
        second = starting.result()
    assert second.hello["pid"] == second.process.pid
    assert first.wait() == 0


def test_a_private_engine_is_refused_while_another_stays(engines: Engines) -> None:
    engines.start()
    began = time.monotonic()
    second = engines.start("--local")
    assert second.hello["error"]["code"] == "RESOURCE_BUSY"
    assert time.monotonic() - began < 5
    second.wait()


def test_a_state_directory_with_a_long_name_works(tmp_path: Path) -> None:
    engines = Engines(tmp_path.joinpath("d" * 100))
    engine = engines.start()
    with engine.client() as client:
        assert run(client, "echo", "hi")["stdout"] == "hi\n"
        client.delete(BOX)
    assert engine.end() == 0


def test_an_upload_that_is_sent_again_is_stored_once(engines: Engines) -> None:
    key = {"idempotency-key": "k1"}
    line = BOX + "/files?path=log&append=true"
    with engines.start().client() as client:
        answers = [client.put(line, content=b"line\n", headers=key).json() for _ in range(2)]
        assert answers[0] == answers[1]
        assert client.get(BOX + "/files?path=log").content == b"line\n"
        other = client.put(line, content=b"another line\n", headers=key)
        assert other.json()["code"] == "IDEMPOTENCY_CONFLICT"
