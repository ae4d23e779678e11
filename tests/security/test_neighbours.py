"""22 and 26: sandboxes have nothing writable in common, and copies of one are told apart."""

import secrets

import httpx2
import pytest

from e2e.hosts import SANDBOXES, Host, run

pytestmark = pytest.mark.e2e

A, B = f"{SANDBOXES}/a", f"{SANDBOXES}/b"

MARK = """
cut -d' ' -f5 /proc/self/mountinfo | while read -r place; do
    (echo {marker} >"$place/{marker}") 2>/dev/null && echo "$place"
done
true
"""
SEEK = """
cut -d' ' -f5 /proc/self/mountinfo | while read -r place; do
    test -e "$place/{marker}" && echo "$place"
done
true
"""
WHO = """
cat /etc/machine-id
hostname
stat --file-system --format=%i /
python3 -c 'import uuid; print(uuid.uuid4())'
"""


def sh(client: httpx2.Client, url: str, script: str) -> list[str]:
    told = run(client, url, "sh", "-c", script)
    assert told["exitCode"] == 0, told
    return str(told["stdout"]).split()


def marks(client: httpx2.Client) -> tuple[set[str], set[str]]:
    """Leave a mark in every mount of A; return where, and where B sees one."""
    marker = "m" + secrets.token_hex(8)
    return set(sh(client, A, MARK.format(marker=marker))), set(
        sh(client, B, SEEK.format(marker=marker))
    )


def test_a_mark_in_any_mount_of_one_sandbox_is_not_in_another(host: Host) -> None:
    with host.start(ATOLL_POOL_TARGET="1").client() as client:
        left, seen = marks(client)
        assert {"/", "/dev/shm"} <= left
        assert seen == set()


def test_a_mark_in_a_mount_they_share_is_seen(host: Host) -> None:
    """The weakened run."""
    with host.start().client() as client:
        client.post("/v2/namespaces/N/volumes", json={"name": "shared", "shared": True})
        for url in (A, B):
            assert client.put(url, json={"volumes": {"/data": "shared"}}).is_success
        left, seen = marks(client)
        assert "/data" in left
        assert seen == {"/data"}


def test_two_forks_are_told_apart_by_all_they_say_of_themselves(host: Host) -> None:
    with host.start().client() as client:
        origin = sh(client, A, WHO)
        forks = client.post(A + "/fork", json={"count": 2}).json()["forks"]
        said = [origin, *(sh(client, f"{SANDBOXES}/{fork['id']}", WHO) for fork in forks)]
        for what in zip(*said, strict=True):
            assert len(set(what)) == 3, what
        again = sh(client, A, WHO)
        assert again[:3] == origin[:3], "what is compared stays the same in one sandbox"
        assert again[3] != origin[3]


def test_forks_have_no_layer_in_common_that_both_write(host: Host) -> None:
    with host.start().client() as client:
        sh(client, A, "echo before >/workspace/file")
        client.post(A + "/fork", json={"count": 1, "id": "b"})
        sh(client, A, "echo a >/workspace/file")
        sh(client, B, "echo b >>/workspace/file")
        assert sh(client, A, "cat /workspace/file") == ["a"]
        assert sh(client, B, "cat /workspace/file") == ["before", "b"]
        assert sorted((layer / "workspace/file").read_text() for layer in host.layers()) == [
            "a\n",
            "before\nb\n",
        ]
