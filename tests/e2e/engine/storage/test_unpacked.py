"""Backups that are put back by sharing blocks, in real sandboxes."""

import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from atoll.storage.btrfs_layers import TREES
from e2e.hosts import Host, run

pytestmark = pytest.mark.e2e

NAMESPACE = "/v2/namespaces/N"
BOX, OTHER = NAMESPACE + "/sandboxes/box", NAMESPACE + "/sandboxes/other"

TREE = r"""
mkdir -p /workspace/p/a/b/empty "/workspace/p/ünï 文" && cd /workspace/p
head -c 3000000 /dev/urandom > a/big; ln a/big a/b/hard; ln a/big zz; ln -s a/big link; ln -s /nowhere gone
echo secret > private; chmod 600 private; echo run > tool; chmod 4755 tool; : > none
truncate -s 50M sparse; echo end >> sparse; for i in $(seq 300); do echo $i > "ünï 文/$i"; done
mkfifo pipe; chown 1234:5678 a/b a/big; chown -h 7:8 link; chmod 1777 a/b/empty
printf 'x\n' > "$(printf 'by\377te')"
touch -d '2001-02-03 04:05:06' a/big a/b private; touch -h -d '2002-03-04' link; chmod 750 .
"""
TELL = (
    "cd {} && find . -printf '%P|%y|%m|%U:%G|%l|%s|%n|%Ts\\n' | grep -v '|p|' | LC_ALL=C sort"
    " | sed '/|d|/s/|[0-9]*|[0-9]*|\\([0-9]*\\)$/|\\1/'"
    "; find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum; stat -c %b sparse"
)


def ask(client: httpx2.Client, method: str, path: str, **body: Any) -> Any:
    answer = client.request(method, path, **body)
    assert answer.is_success, answer.text
    return answer.json()


def sh(client: httpx2.Client, command: str, box: str = BOX) -> str:
    done = run(client, box, "sh", "-c", command)
    assert done["exitCode"] == 0, done
    text: str = done["stdout"]
    return text


def told(client: httpx2.Client, path: str = "/workspace/p", box: str = BOX) -> str:
    return sh(client, TELL.format(path), box)


def backup(client: httpx2.Client, **more: Any) -> str:
    id: str = ask(client, "POST", BOX + "/backups", json={"dir": "/workspace/p"} | more)["id"]
    return id


def restore(client: httpx2.Client, id: str, box: str = BOX, **more: Any) -> Any:
    return ask(client, "POST", box + "/backups/restore", json={"backup": id} | more)


def trees(host: Host) -> set[str]:
    return set(os.listdir(host.state_dir / "layers" / TREES))


def lines(text: str) -> list[str]:
    """What the top directory has is its own: it is as the one before it."""
    return [line for line in text.splitlines() if not line.startswith("|d|")]


def test_what_is_shared_is_what_is_unpacked_and_stays_so(host: Host) -> None:
    plain = host.start(ATOLL_STORAGE_UNPACKED_MB="0")
    with plain.client() as client:
        sh(client, TREE)
        id = backup(client)
        asked = restore(client, id, dir="/tmp/plain")
        expected = lines(told(client, "/tmp/plain"))
        assert trees(host) == set()
    assert plain.end() == 0
    engine = host.start()
    with engine.client() as client:
        sh(client, "rm -rf /workspace/p/a; echo junk > /workspace/p/junk")
        assert restore(client, id) | {"dir": "/tmp/plain"} == asked
        assert trees(host) == {id}
        assert lines(told(client)) == expected
        (host.state_dir / "backups" / id).rename(host.state_dir / "aside")  # it takes no archive
        assert sh(client, "stat -c %a /workspace/p; ls -A /workspace") == "750\np\n"
        assert restore(client, id, dir="/home/new/one")["files"] == asked["files"]
        assert lines(told(client, "/home/new/one")) == expected
        sh(client, "cd /workspace/p; echo more >> zz; cmp zz a/b/hard; rm private; mv a moved")
        restore(client, id)
        assert lines(told(client)) == expected, "what is written does not reach the tree"
        fs(client, host, id, expected)
    first = engine
    first.end(signal.SIGKILL)
    with host.start().client() as client:
        assert lines(told(client)) == expected
        restore(client, id, dir="/workspace/q")
        assert lines(told(client, "/workspace/q")) == expected
        assert trees(host) == {id}
        for box in ask(client, "GET", NAMESPACE + "/sandboxes")["sandboxes"]:
            ask(client, "DELETE", f"{NAMESPACE}/sandboxes/{box['id']}")
        ask(client, "DELETE", f"{NAMESPACE}/backups/{id}")
        assert trees(host) == set()


def fs(client: httpx2.Client, host: Host, id: str, expected: list[str]) -> None:
    """What else is done with files is done with shared ones."""
    ask(client, "POST", BOX + "/sleep")
    assert lines(told(client)) == expected
    snapshot = ask(client, "POST", BOX + "/snapshots", json={})["id"]
    ask(client, "POST", BOX + "/fork", json={"id": "fork"})
    assert lines(told(client, box=NAMESPACE + "/sandboxes/fork")) == expected
    restore(client, id, NAMESPACE + "/sandboxes/fork")
    assert lines(told(client, box=NAMESPACE + "/sandboxes/fork")) == expected
    sh(client, "cd /workspace/p; rm tool; echo changed > private")
    diff = ask(client, "GET", f"{BOX}/diff", params={"since": snapshot})
    assert {Path(c["path"]).name for c in diff["changes"]} >= {"tool", "private"}
    ask(client, "POST", BOX + "/restore", json={"snapshot": snapshot})
    assert lines(told(client)) == expected
    again = backup(client)
    restore(client, again, OTHER, dir="/workspace/r")
    assert lines(told(client, "/workspace/r", OTHER)) == expected
    assert trees(host) == {id, again}
    sizes = ask(client, "GET", NAMESPACE + "/disk")["counts"]
    assert sizes["unpacked"] == 2
    ask(client, "DELETE", f"{NAMESPACE}/backups/{again}")
    assert trees(host) == {id}


POINTS = ["share.unpacked", "share.kept", "share.shared", "share.sent"]


@pytest.mark.timeout(300)
def test_a_death_at_any_step_leaves_the_old_or_the_new(host: Host) -> None:
    """Whatever was begun is gone; what is kept is whole."""
    engine = host.start()
    with engine.client() as client:
        sh(
            client,
            "mkdir p; cd p; head -c 3000000 /dev/urandom > f; echo then > g; sha256sum f > s",
        )
        id = backup(client)
    for point in POINTS:
        with engine.client() as client:
            sh(client, "echo now > p/g; echo now > p/new; rm -f p/f")
            ask(client, "POST", "/v2/gc", json={"dryRun": False})
            assert trees(host) == set()
        assert engine.end() == 0
        engine = host.start(ATOLL_FAULTS_POINT=point)
        with engine.client() as client, suppress(httpx2.TransportError):
            restore(client, id)
        assert engine.wait() == -signal.SIGKILL, point
        engine = host.start()
        assert trees(host) in ({id}, set()), point
        with engine.client() as client:
            state = sh(client, "cat p/g; ls p; ls -A | grep -v '^[.]'")
            assert state.startswith(("now\ng\nnew\ns\np\n", "then\nf\ng\ns\np\n")), point
            restore(client, id)
            assert sh(client, "cd p; sha256sum -c s; ls; ls -A ..") == "f: OK\nf\ng\ns\np\n", point
            assert trees(host) == {id}


@pytest.mark.timeout(300)
def test_a_tree_that_is_not_what_it_was_goes(host: Host) -> None:
    with host.start().client() as client:
        sh(
            client,
            "mkdir p; cd p; head -c 3000000 /dev/urandom > f; echo then > g; sha256sum f > s",
        )
        id = backup(client)
        for harm in (
            "echo bad > files/g",
            "rm files/f",
            "echo '{' > account.json",
            "mkfifo files/x",
        ):
            restore(client, id)
            tree = host.state_dir / "layers" / TREES / id
            script = f"btrfs property set -f {tree} ro false && cd {tree} && {harm}"
            subprocess.run(["sh", "-c", script], check=True, capture_output=True)
            restore(client, id)
            assert sh(client, "cd p; sha256sum -c s; cat g; ls -A ..") == "f: OK\nthen\np\n", harm
            assert trees(host) <= {id}


@pytest.mark.timeout(300)
def test_many_at_once_and_beside_what_takes_it_away(host: Host) -> None:
    with host.start().client() as client:
        sh(client, "mkdir p; cd p; head -c 9000000 /dev/urandom > f; sha256sum f > s")
        id = backup(client)
        with ThreadPoolExecutor(6) as pool:
            boxes = [BOX, BOX, OTHER, OTHER]
            done = [pool.submit(restore, client, id, box) for box in boxes]
            assert [one.result()["files"] for one in done] == [done[0].result()["files"]] * 4
            for box in boxes:
                assert sh(client, "cd p; sha256sum -c s; ls -A ..", box) == "f: OK\np\n"
            away = [
                pool.submit(client.post, BOX + "/backups/restore", json={"backup": id}),
                pool.submit(client.post, OTHER + "/backups/restore", json={"backup": id}),
                pool.submit(client.delete, OTHER),
                pool.submit(client.delete, f"{NAMESPACE}/backups/{id}"),
            ]
            codes = [one.result().status_code for one in away]
        assert codes[3] < 300, codes
        assert sh(client, "cd p; sha256sum -c s; ls -A ..") == "f: OK\np\n"
        assert trees(host) == set()
        ask(client, "DELETE", BOX)
        client.delete(OTHER)


@pytest.mark.timeout(300)
def test_trees_are_bounded_and_have_no_room_beyond_a_sandbox_s_disk(host: Host) -> None:
    """Of what does not fit together, what was used longest ago goes."""
    with host.start(ATOLL_STORAGE_UNPACKED_MB="8").client() as client:
        ids = []
        for number in range(3):
            sh(
                client,
                f"rm -rf p; mkdir p; cd p; head -c 3000000 /dev/urandom > f; echo {number} > g",
            )
            ids.append(backup(client))
        for id in (ids[0], ids[1], ids[0], ids[2]):
            restore(client, id)
        assert trees(host) == {ids[0], ids[2]}
        assert sh(client, "cat p/g") == "2\n"
        items = ask(client, "POST", "/v2/gc", json={})["items"]
        assert {(i["kind"], i["reason"]) for i in items} == {("unpacked", "cached")}
        assert {i["id"] for i in items} == trees(host)
        assert all(3_000_000 <= i["size"] < 4_000_000 for i in items)
        ask(client, "POST", "/v2/gc", json={"dryRun": False})
        assert trees(host) == set()
        sh(client, "rm -rf p; mkdir p; cd p; head -c 9000000 /dev/urandom > f")
        large = backup(client)
        restore(client, large)
        assert trees(host) == set(), "it is larger than all may be"


def test_what_sharing_would_not_bring_back_comes_from_the_archive(host: Host) -> None:
    """Extended attributes are not shared."""
    with host.start().client() as client:
        sh(client, "mkdir p; cd p; head -c 3000000 /dev/urandom > f")
        sh(client, 'python3 -c \'import os; os.setxattr("p/f", "user.x", b"1")\'')
        id = backup(client)
        sh(client, "rm p/f")
        restore(client, id)
        assert (
            sh(client, 'python3 -c \'import os; print(os.getxattr("p/f", "user.x"))\'') == "b'1'\n"
        )
        assert trees(host) == set()
