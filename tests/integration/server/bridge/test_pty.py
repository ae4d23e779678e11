"""Terminals and commands with a real agent, without containers: for machines without root."""

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, unix_connect
from websockets.sync.connection import Connection

from integration.server.engines import EngineProcess


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    found = EngineProcess(tmp_path_factory.mktemp("bridge"), level="fake")
    yield found
    with found.client() as client:
        for info in client.get("/v2/namespaces/Sandbox/sandboxes").json()["sandboxes"]:
            client.delete(f"/v1/sandbox/{info['id']}")
    assert found.end() == 0, found.log


@pytest.fixture
def id(engine: EngineProcess) -> Iterator[str]:
    with engine.client() as client:
        made: str = client.post("/v1/sandbox").json()["id"]
        yield made
        assert client.delete(f"/v1/sandbox/{made}").status_code == 204


def opened(engine: EngineProcess, id: str, query: str = "") -> ClientConnection:
    """A terminal whose shell does not read what this machine's user has for his."""
    uri = f"ws://engine/v1/sandbox/{id}/pty?shell=/bin/sh&{query}"
    terminal = unix_connect(engine.hello["socket"], uri=uri, open_timeout=50)
    assert json.loads(terminal.recv(30)) == {"type": "ready"}
    return terminal


def shown(terminal: Connection, text: bytes) -> bytes:
    """What a terminal shows until it shows *text*."""
    found = b""
    while text not in found:
        message = terminal.recv(30)
        assert isinstance(message, bytes), message
        found += message
    return found


def events(engine: EngineProcess, id: str, *argv: str, **fields: Any) -> str:
    with engine.client() as client:
        return client.post(f"/v1/sandbox/{id}/exec", json={"argv": argv, **fields}).text


def test_a_terminal_is_typed_into_resized_and_ends(engine: EngineProcess, id: str) -> None:
    with opened(engine, id, "cols=100&rows=40") as terminal:
        terminal.send(b"stty size; echo o''ne\n")
        assert b"40 100" in shown(terminal, b"one\r")
        terminal.send('{"type":"resize","cols":90,"rows":30}')
        terminal.send(b"until [ \"$(stty size)\" = '30 90' ]; do :; done; echo t''wo; exit 6\n")
        shown(terminal, b"two\r")
        assert [m for m in terminal if isinstance(m, str)] == ['{"type":"exit","code":6}']


def test_the_terminal_of_a_session_is_one_and_stays(engine: EngineProcess, id: str) -> None:
    with opened(engine, id, "session=s") as first:
        first.send(b"mine=1; echo o''ne\n")
        shown(first, b"one\r")
    with opened(engine, id, "session=s") as again, opened(engine, id, "session=s") as beside:
        shown(again, b"one\r")
        again.send(b"echo is-$mine\n")
        shown(again, b"is-1\r")
        shown(beside, b"is-1\r")


def test_callers_of_a_session_at_the_same_time_share_its_terminal(
    engine: EngineProcess, id: str
) -> None:
    pids: list[bytes] = []

    def ask(number: int) -> None:
        with opened(engine, id, "session=s") as terminal:
            terminal.send(b"echo $$-by-%d\n" % number)
            mine = re.compile(rb"(\d+)-by-%d\r" % number)
            found = b""
            while not (match := mine.search(found)):
                message = terminal.recv(30)
                found += message if isinstance(message, bytes) else b""
            pids.append(match[1])

    callers = [threading.Thread(target=ask, args=(number,)) for number in range(5)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(pids) == 5
    assert len(set(pids)) == 1


def test_a_time_limit_ends_the_whole_tree(engine: EngineProcess, id: str, tmp_path: Path) -> None:
    late = tmp_path / "late"
    script = f"echo before; (sleep 1.5; touch {late}) & sleep 60"
    told = events(engine, id, "sh", "-c", script, timeout_ms=300)
    assert told.startswith("event: stdout\ndata: YmVmb3JlCg==\n\n")
    assert told.endswith('{"error":"command timed out after 300 ms","code":"exec_error"}\n\n')
    assert '{"exit_code":0}' in events(engine, id, "sleep", "2")
    assert not late.exists()
