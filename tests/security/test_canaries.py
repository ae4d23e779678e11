"""16: what was said to the engine, to others or about a sandbox is nowhere inside of it."""

import secrets
from typing import Any

import httpx2
import pytest

from e2e.hosts import SANDBOXES, Host, run

pytestmark = pytest.mark.e2e

BOX = SANDBOXES + "/box"
NEIGHBOUR = "/v2/namespaces/M/sandboxes/neighbour"

# What is looked for comes in as a file: as an argument it would be found.
LOOK = """
cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/[0-9]*/comm /proc/mounts /proc/net/unix \
    2>/dev/null >/tmp/seen
find / -xdev -type f -cmin -30 -exec grep -lsFaf /tmp/wanted {} +
grep -rlsFaf /tmp/wanted /dev/shm /dev/mqueue /run /etc/hosts /etc/hostname /etc/resolv.conf
true
"""


class Canaries:
    """Texts that are found nowhere else, by where they were planted."""

    def __init__(self) -> None:
        self.planted: dict[str, str] = {}

    def at(self, place: str) -> str:
        return self.planted.setdefault(place, "c" + secrets.token_hex(8))

    def seen(self, client: httpx2.Client) -> set[str]:
        """Files in the sandbox that hold one."""
        wanted = "\n".join(self.planted.values())
        answer = client.put(BOX + "/files", params={"path": "/tmp/wanted"}, content=wanted)
        assert answer.is_success, answer.text
        told = run(client, BOX, "sh", "-c", LOOK)
        assert told["exitCode"] == 0, told
        return set(told["stdout"].split()) - {"/tmp/wanted"}


def ask(client: httpx2.Client, method: str, url: str, **content: Any) -> Any:
    answer = client.request(method, url, **content)
    assert answer.is_success, answer.text
    return answer.json()


def plant_at_neighbour(client: httpx2.Client, at: Any) -> None:
    """Use the whole API for another sandbox, in another namespace."""
    options = {"env": {"A": at("env")}, "labels": {"a": at("label")}}
    ask(client, "PUT", NEIGHBOUR, json=options)
    command = {"command": ["sh", "-c", f": {at('command')}"], "env": {"B": at("command env")}}
    ask(client, "POST", NEIGHBOUR + "/exec", json=command)
    where = {"path": "/workspace/" + at("file name")}
    ask(client, "PUT", NEIGHBOUR + "/files", params=where, content=at("file"))
    session = {"id": at("session"), "env": {"C": at("session env")}}
    ask(client, "POST", NEIGHBOUR + "/sessions", json=session)
    ask(client, "POST", NEIGHBOUR + "/env", json={"env": {"D": at("variables")}})
    process = {"command": f"sleep 100; : {at('process')}", "processId": at("process id")}
    ask(client, "POST", NEIGHBOUR + "/processes", json=process)
    ask(client, "POST", NEIGHBOUR + "/snapshots", json={"name": at("snapshot")})
    backup = {"dir": "/workspace", "name": at("backup"), "compression": "none"}
    ask(client, "POST", NEIGHBOUR + "/backups", json=backup)
    ask(client, "POST", "/v2/namespaces/M/volumes", json={"name": at("volume")})


def plant_beside(client: httpx2.Client, canaries: Canaries) -> None:
    """Say about the sandbox itself what is not for those inside."""
    at = canaries.at
    key = ask(client, "POST", "/v2/keys", json={"name": at("name of a key")})
    canaries.planted["key"] = key["key"]
    client.headers["authorization"] = f"Bearer {key['key']}"
    client.headers["x-request"] = at("header")
    ask(client, "PUT", BOX, json={"labels": {"mine": at("own label")}})
    ask(client, "POST", BOX + "/snapshots", json={"name": at("own snapshot")})
    exposed = ask(client, "POST", BOX + "/ports", json={"port": 8_000, "public": False})
    canaries.planted["preview"] = exposed["secret"]
    url = f"http://user:{at('password')}@127.0.0.1:9/x.git"
    assert client.post(BOX + "/git/checkout", json={"url": url}).is_error


def test_what_is_said_outside_is_nowhere_inside(host: Host) -> None:
    canaries = Canaries()
    engine = host.start(ATOLL_POOL_TARGET="2", PLANTED=canaries.at("environment of the engine"))
    with engine.client() as client:
        plant_at_neighbour(client, canaries.at)
        plant_beside(client, canaries)
        assert canaries.seen(client) == set()
        ask(client, "DELETE", NEIGHBOUR)


def test_what_is_inside_is_seen(host: Host) -> None:
    """The weakened run: the same look finds what its own sandbox was given."""
    canaries = Canaries()
    with host.start().client() as client:
        ask(client, "PUT", BOX, json={"env": {"A": canaries.at("env")}})
        assert canaries.seen(client) == {"/tmp/seen"}
        where = {"path": "/dev/shm/file"}
        ask(client, "PUT", BOX + "/files", params=where, content=canaries.at("file"))
        assert canaries.seen(client) == {"/tmp/seen", "/dev/shm/file"}
