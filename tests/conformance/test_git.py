"""Case L14: checkouts from a git server on the sandbox's own loopback."""

import asyncio
import http.client
import json
import shutil
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

import atoll
import atoll.sync
from atoll import errors

TOKEN = "tok-en%"
QUOTED = "tok-en%25"

_REPOSITORY = """
set -e
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@x
root=$(mktemp -d) && git init -q -b main $root/work && cd $root/work
for n in 1 2 3; do echo $n > f; git add f; git commit -qm "c$n"; done
git tag v1 HEAD~1
git checkout -qb side && echo side > f && git commit -qam side && git checkout -q main
git clone -q --bare . $root/repo.git && git init -q --bare -b main $root/empty.git
git -C $root/repo.git config uploadpack.allowFilter true
echo $root; git rev-parse main
"""

_SCAN = """
for n in $(seq 60); do
  grep -la 'tok[-]en' /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null
  sleep 0.05
done
"""
"""Names the arguments and environments of all processes that hold the token, for 3 s."""


class Git(NamedTuple):
    base: str
    root: str
    head: str

    def url(self, kind: str = "open", repository: str = "repo.git", userinfo: str = "") -> str:
        return f"http://{userinfo}{self.base}/{kind}/{repository}"


@pytest.fixture(autouse=True)
def _git(level: str) -> None:
    if level == "fake" and not shutil.which("git"):
        pytest.skip("the host has no git")


@pytest.fixture
async def git(sandbox: atoll.Sandbox) -> AsyncIterator[Git]:
    root, head = (await sandbox.exec(["sh", "-c", _REPOSITORY], check=True)).stdout.split()
    script = Path(__file__).with_name("gitserver.py").read_text()
    await sandbox.write_file(f"{root}/server.py", script)
    argv = ["python3", f"{root}/server.py", root, f"{root}/port"]
    server = await sandbox.start_process(argv)
    for _ in range(200):
        if await sandbox.exists(f"{root}/port"):
            break
        await asyncio.sleep(0.05)
    port = (await sandbox.read_file(f"{root}/port")).content
    yield Git(f"127.0.0.1:{port}", root, head)
    await server.kill()


@pytest.mark.container
async def test_l14_a_repository_is_cloned(sandbox: atoll.Sandbox, git: Git) -> None:
    done = await sandbox.git_checkout(git.url())
    assert (done.success, done.path) == (True, "/workspace/repo")
    assert (done.branch, done.commit, done.url) == ("main", git.head, git.url())
    assert (await sandbox.read_file("repo/f")).content == "3\n"


@pytest.mark.container
async def test_l14_branch_tag_depth_and_directory(sandbox: atoll.Sandbox, git: Git) -> None:
    side = await sandbox.git_checkout(git.url(), branch="side", target_dir="a b/-x", depth=1)
    assert (side.branch, side.path) == ("side", "/workspace/a b/-x")
    count = await sandbox.exec(["git", "-C", side.path, "rev-list", "--count", "HEAD"])
    assert count.stdout == "1\n"
    tag = await sandbox.git_checkout(git.url(), branch="v1", target_dir="/tmp/tag")
    assert (tag.branch, (await sandbox.read_file("/tmp/tag/f")).content) == (None, "2\n")


@pytest.mark.container
async def test_l14_an_empty_repository_has_no_commit(sandbox: atoll.Sandbox, git: Git) -> None:
    done = await sandbox.git_checkout(git.url(repository="empty.git"))
    assert (done.path, done.commit) == ("/workspace/empty", None)


async def test_l14_the_directory_of_the_session_counts(sandbox: atoll.Sandbox, git: Git) -> None:
    session = await sandbox.create_session(id="s", cwd="/tmp")
    await session.exec("mkdir -p deep && cd deep")
    assert (await session.git_checkout(git.url())).path == "/tmp/deep/repo"


@pytest.mark.container
@pytest.mark.parametrize("token", [QUOTED, "%74ok-en%25"])
async def test_l14_credentials_are_nowhere_but_at_the_server(
    url: str, sandbox: atoll.Sandbox, git: Git, token: str
) -> None:
    scan = asyncio.create_task(sandbox.exec(["sh", "-c", _SCAN]))
    await asyncio.sleep(0.3)
    done = await sandbox.git_checkout(git.url("slow", userinfo=f"u:{token}@"))
    assert (done.commit, done.url) == (git.head, git.url("slow"))
    found = [line for line in (await scan).stdout.split() if line]
    assert found == []
    left = await sandbox.exec(["grep", "-rIl", "tok-en", done.path, "/tmp", "--exclude=server.py",
                               "--exclude=seen"])  # fmt: skip
    assert left.stdout == ""
    state_dir = Path(url.removeprefix("unix://")).parent  # logs and the store of the engine
    kept = [file for file in state_dir.iterdir() if file.is_file() and file.suffix != ".btrfs"]
    assert kept
    assert not [file for file in kept if b"tok-en" in file.read_bytes()]
    seen = await sandbox.read_file(f"{git.root}/seen")
    assert "Basic" in seen.content
    pull = await sandbox.exec(["git", "-C", done.path, "pull"], env={"GIT_TERMINAL_PROMPT": "0"})
    assert pull.exit_code != 0, "the clone remembers the credentials"


async def test_l14_the_scan_would_find_them(sandbox: atoll.Sandbox) -> None:
    """The scan above is no test if it cannot see an argument or a variable."""
    scan = asyncio.create_task(sandbox.exec(["sh", "-c", _SCAN]))
    await sandbox.exec(["sh", "-c", "sleep 1", "tok-en"], env={"T": "tok-en"})
    assert {path.rpartition("/")[2] for path in (await scan).stdout.split()} == {
        "cmdline", "environ",
    }  # fmt: skip


async def test_l14_wrong_credentials_are_typed_and_hidden(sandbox: atoll.Sandbox, git: Git) -> None:
    for userinfo in ("u:wr0ng-pw@", "wr0ng-pw@", ""):
        with pytest.raises(errors.GitAuthFailedError) as caught:
            await sandbox.git_checkout(git.url("private", userinfo=userinfo))
        assert "wr0ng-pw" not in str(caught.value.to_wire())
        assert not await sandbox.exists("repo")


async def test_l14_a_redirect_gets_no_credentials(sandbox: atoll.Sandbox, git: Git) -> None:
    with pytest.raises(errors.GitAuthFailedError):
        await sandbox.git_checkout(git.url("away", userinfo=f"u:{QUOTED}@"))
    assert not await sandbox.exists(f"{git.root}/seen")


async def test_l14_failures_are_typed(sandbox: atoll.Sandbox, git: Git) -> None:
    with pytest.raises(errors.GitRepositoryNotFoundError):
        await sandbox.git_checkout(git.url(repository="nothing.git"))
    with pytest.raises(errors.GitBranchNotFoundError):
        await sandbox.git_checkout(git.url(), branch="nope")
    with pytest.raises(errors.GitNetworkError):
        await sandbox.git_checkout("http://127.0.0.1:1/x/repo.git")
    await sandbox.write_file("repo/mine", "x")
    with pytest.raises(FileExistsError):
        await sandbox.git_checkout(git.url())
    assert (await sandbox.read_file("repo/mine")).content == "x"


@pytest.mark.parametrize(
    "options",
    [
        {"branch": "x;touch /tmp/p"},
        {"branch": "--upload-pack=touch /tmp/p"},
        {"branch": "$(touch /tmp/p)"},
        {"target_dir": "$(touch /tmp/p)"},
        {"target_dir": "--upload-pack=touch /tmp/p"},
        {"target_dir": "`touch /tmp/p`\n;touch /tmp/p"},
    ],
)
async def test_l14_no_value_is_run(
    sandbox: atoll.Sandbox, git: Git, options: dict[str, str]
) -> None:
    await sandbox.delete_file("/tmp/p") if await sandbox.exists("/tmp/p") else None
    try:
        await sandbox.git_checkout(git.url("slow", userinfo=f"u:{QUOTED}@"), **options)  # type: ignore[arg-type]
    except errors.ValidationFailedError:
        assert "branch" in options
    assert not await sandbox.exists("/tmp/p")


async def test_l14_a_clone_that_takes_too_long_is_ended(sandbox: atoll.Sandbox, git: Git) -> None:
    began = time.monotonic()
    with pytest.raises(errors.TimeoutError) as caught:
        await sandbox.git_checkout(git.url("hang"), clone_timeout="700ms")
    assert time.monotonic() - began < 10
    assert "clone_timeout" in str(caught.value)
    await _no_git_runs(sandbox)
    assert not await sandbox.exists("repo")


async def test_l14_a_caller_who_leaves_ends_the_clone(sandbox: atoll.Sandbox, git: Git) -> None:
    clone = asyncio.create_task(sandbox.git_checkout(git.url("hang")))
    await asyncio.sleep(0.5)
    clone.cancel()
    await asyncio.wait({clone})
    await _no_git_runs(sandbox)


async def _no_git_runs(sandbox: atoll.Sandbox) -> None:
    script = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'git clone.*[h]ang'"
    for _ in range(40):
        if (await sandbox.exec(["sh", "-c", script])).stdout == "0\n":
            return
        await asyncio.sleep(0.05)
    pytest.fail("git goes on")


@pytest.mark.container
async def test_l14_by_the_blocking_sdk_and_http(url: str, sandbox: atoll.Sandbox, git: Git) -> None:
    def clone() -> tuple[str | None, dict[str, object], int, str]:
        with atoll.sync.connect(url) as env:
            box = atoll.sync.get_sandbox(env.Sandbox, sandbox.id)
            commit = box.git_checkout(git.url(), target_dir="one").commit
        connection = http.client.HTTPConnection("localhost", timeout=30)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(url.removeprefix("unix://"))
        path = f"/v2/namespaces/Sandbox/sandboxes/{sandbox.id}/git/checkout"
        headers = {"content-type": "application/json", "idempotency-key": "k1"}
        body = json.dumps({"url": git.url(), "targetDir": "two", "cloneTimeout": 30_000})
        connection.request("POST", path, body, headers)
        told = json.loads(connection.getresponse().read())
        connection.request("POST", path, json.dumps({"url": "file:///x"}), headers)
        answer = connection.getresponse()
        refused = answer.status, json.loads(answer.read())["code"]
        connection.close()
        return commit, told, *refused

    commit, told, status, code = await asyncio.to_thread(clone)
    assert commit == git.head
    assert (told["path"], told["commit"], told["branch"]) == ("/workspace/two", git.head, "main")
    assert (status, code) == (400, "INVALID_GIT_URL")
