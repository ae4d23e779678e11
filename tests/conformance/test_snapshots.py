"""Snapshots, forks and ways back, as a caller sees them; probe 22: forks have fresh identities."""

import asyncio

import pytest

import atoll
from atoll import errors

pytestmark = pytest.mark.container  # the fake runtime's sandboxes share the host's files


async def text(box: atoll.Sandbox, command: str) -> str:
    return (await box.exec(command, check=True)).stdout


async def test_a_sandbox_goes_back_to_what_it_was(sandbox: atoll.Sandbox) -> None:
    await text(sandbox, "mkdir -p d && echo then > d/f && chmod 600 d/f && ln -s d/f l")
    snapshot = await sandbox.snapshot("then")
    await text(sandbox, "echo now > d/f; rm l; touch new; rm -rf /workspace/gone; cd d; export A=1")
    info = await sandbox.restore(snapshot)
    assert (info.state, info.reason) == ("stopped", "restored")
    assert await text(sandbox, "cd /workspace; cat l; stat -c %a d/f; ls") == "then\n600\nd\nl\n"
    assert (await sandbox.info()).generation == info.generation + 1
    assert await text(sandbox, "echo $A") == "1\n"


async def test_processes_go_on_during_a_snapshot_and_end_with_a_restore(
    sandbox: atoll.Sandbox,
) -> None:
    ticking = "i=0; while sleep 0.02; do i=$((i+1)); echo $i; done"
    process = await sandbox.start_process(ticking, process_id="ticks")
    await process.wait_for_log("3", timeout=20)
    snapshot = await sandbox.snapshot()
    seen = (await process.get_logs()).stdout.splitlines()[-1]
    await process.wait_for_log(str(int(seen) + 5), timeout=20)
    await sandbox.restore(snapshot)
    assert await sandbox.list_processes() == []


async def test_forks_share_files_and_nothing_else(sandbox: atoll.Sandbox) -> None:
    await sandbox.set_env_vars({"SHARED": "yes"})
    await text(sandbox, "echo origin > f; export MINE=1; (sleep 300 &) ; uname -n")
    forks = await sandbox.fork(count=3)
    assert forks.errors == {}
    try:
        for fork in forks:
            assert await text(fork, "cat f; echo $SHARED$MINE; pgrep sleep | wc -l") == (
                "origin\nyes\n0\n"
            )
            await text(fork, f"echo {fork.id} > f")
        assert await asyncio.gather(*(text(fork, "cat f") for fork in forks)) == [
            f"{fork.id}\n" for fork in forks
        ]
        assert await text(sandbox, "cat f") == "origin\n"
    finally:
        await asyncio.gather(*(fork.destroy() for fork in forks))


async def test_two_forks_have_identities_of_their_own(sandbox: atoll.Sandbox) -> None:
    await text(sandbox, "true")
    forks = await sandbox.fork(count=2)
    try:
        told = "cat /etc/machine-id /proc/sys/kernel/random/uuid; hostname; stat -fc %i /"
        first, second = [(await text(fork, told)).split() for fork in forks]
        assert all(one != other for one, other in zip(first, second, strict=True))
        assert (await text(sandbox, "cat /etc/machine-id")).strip() not in {first[0], second[0]}
    finally:
        await asyncio.gather(*(fork.destroy() for fork in forks))


async def test_what_changed_is_told(sandbox: atoll.Sandbox) -> None:
    await text(sandbox, "mkdir gone; echo a > kept; echo a > edited; touch gone/f")
    snapshot = await sandbox.snapshot()
    await text(sandbox, "echo bb > edited; rm -r gone; mkdir new; ln -s x new/l; rm /etc/issue")
    diff = await sandbox.diff(snapshot)
    assert [(c.path, c.kind, c.type, c.size) for c in diff] == [
        ("/etc/issue", "deleted", "file", 0),
        ("/workspace/edited", "modified", "file", 3),
        ("/workspace/gone", "deleted", "directory", 0),
        ("/workspace/new", "created", "directory", 0),
        ("/workspace/new/l", "created", "symlink", 0),
    ]


async def test_a_snapshot_outlives_its_sandbox(sandbox: atoll.Sandbox, url: str) -> None:
    await text(sandbox, "echo kept > f")
    snapshot = await sandbox.snapshot(labels={"case": sandbox.id})
    await sandbox.destroy()
    async with atoll.connect(url) as env:
        page = await env.Sandbox.snapshots(labels={"case": sandbox.id})
        assert [found.id for found in page] == [snapshot.id]
        assert await env.Sandbox.get_snapshot(snapshot.id) == page.snapshots[0]
        await sandbox.restore(snapshot)
        assert await text(sandbox, "cat f") == "kept\n"
        await env.Sandbox.delete_snapshot(snapshot)
        with pytest.raises(errors.SnapshotNotFoundError):
            await sandbox.restore(snapshot)
        assert await text(sandbox, "cat f") == "kept\n"


async def test_an_id_that_is_taken_is_refused(sandbox: atoll.Sandbox) -> None:
    await text(sandbox, "true")
    with pytest.raises(errors.SandboxAlreadyExistsError):
        await sandbox.fork(sandbox.id)
