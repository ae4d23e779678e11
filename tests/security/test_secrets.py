"""Secrets that were told to the engine are in no argument, environment or log of the host."""

import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from e2e.hosts import SANDBOXES, Host, run
from integration.buckets import BUCKET, Server, serving
from integration.server.engines import EngineProcess

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

BOX = SANDBOXES + "/box"
KEPT_BY_DESIGN = {"atoll.db", "atoll.db-wal"}
"""The store knows what a sandbox that wakes needs again; of keys it has only the hashes."""

LAYERS = "layers.btrfs"
"""What sandboxes write, and far too large to read."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


class Planted:
    """Texts that are found nowhere else, by what they are."""

    def __init__(self, server: Server) -> None:
        self.texts = {"bucket": server.secret.encode()}

    def new(self, what: str) -> str:
        text = "c" + secrets.token_hex(12)
        self.texts[what] = text.encode()
        return text

    def within(self, content: bytes) -> set[str]:
        """What of it *content* holds."""
        return {what for what, text in self.texts.items() if text in content}


def plant(client: httpx2.Client, server: Server) -> Planted:
    """Tell the engine a key, a bucket's credentials and variables of a sandbox and a command."""
    planted = Planted(server)
    options = {"env": {"TOKEN": planted.new("variable of the sandbox")}}
    ask(client, "PUT", BOX, json=options)
    variables = {"env": {"SET": planted.new("variable that was set")}}
    ask(client, "POST", BOX + "/env", json=variables)
    mount = {"bucket": BUCKET, "path": "/workspace/data", "endpoint": server.endpoint}
    ask(client, "POST", BOX + "/mounts", json=mount | {"credentials": server.credentials})
    command = {"command": "sleep 1000", "env": {"OWN": planted.new("variable of a command")}}
    ask(client, "POST", BOX + "/processes", json=command)
    key = ask(client, "POST", "/v2/keys", json={"name": "canary"})["key"]
    planted.texts["key"] = key.encode()
    answer = client.get(SANDBOXES, headers={"authorization": f"Bearer {key}"})
    assert answer.is_success, answer.text
    refused = {"authorization": "Bearer " + planted.new("key that is wrong")}
    assert client.get(SANDBOXES, headers=refused).is_error
    client.headers["authorization"] = f"Bearer {key}"
    assert run(client, BOX, "ls", "/workspace/data")["exitCode"] == 0
    return planted


def ask(client: httpx2.Client, method: str, url: str, **content: Any) -> Any:
    answer = client.request(method, url, **content)
    assert answer.is_success, answer.text
    return answer.json()


def told_by_processes(planted: Planted) -> dict[str, set[str]]:
    """Return what argv and environ of all processes hold."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                content = (process / name).read_bytes()
                command = (process / "cmdline").read_bytes()
            except OSError:  # it ended
                continue
            if what := planted.within(content):
                found[f"{name} of {command.decode(errors='replace')!r}"] = what
    return found


def holding(folder: Path, planted: Planted) -> dict[Path, set[str]]:
    """Return the files below *folder*, and of its own file system, that hold a secret."""
    found = {}
    for top, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not os.path.ismount(Path(top, name))]
        for path in (Path(top, name) for name in names):
            if path.name == LAYERS or not stat.S_ISREG(path.lstat().st_mode):
                continue
            if what := planted.within(path.read_bytes()):
                found[path] = what
    return found


@pytest.fixture
def engine(host: Host, server: Server) -> Iterator[EngineProcess]:
    """An engine as systemd starts it; with a umask like this one no sandbox came up once."""
    before = os.umask(0o077)
    try:
        yield host.start(
            ATOLL_STORAGE_BUCKET_ENDPOINTS=server.endpoint, ATOLL_SERVER_LOG_LEVEL="debug"
        )
    finally:
        os.umask(before)


def test_secrets_are_in_no_process_and_no_log(
    host: Host, server: Server, engine: EngineProcess
) -> None:
    with engine.client() as client:
        planted = plant(client, server)
        found = told_by_processes(planted)
        # The weakened look: it finds what is meant to be there.
        commands = {place for place in found if "'sleep\\x001000\\x00'" in place}
        assert {place.split()[0] for place in commands} == {"environ"}
        of_command = {"variable of the sandbox", "variable that was set", "variable of a command"}
        assert set().union(*(found[place] for place in commands)) == of_command
        assert {place: what for place, what in found.items() if place not in commands} == {}
        assert planted.within(engine.log.encode()) == set()


def test_files_that_hold_secrets_are_for_the_engine_alone(
    host: Host, server: Server, engine: EngineProcess
) -> None:
    with engine.client() as client:
        planted = plant(client, server)
        found = holding(host.state_dir, planted)
        assert stat.S_IMODE(host.state_dir.stat().st_mode) == 0o700
        assert found
        for path in found:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        assert {path.name for path in found} <= KEPT_BY_DESIGN
        assert not {"key", "key that is wrong"} & set().union(*found.values())
