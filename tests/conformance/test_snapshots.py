"""Snapshots, forks and ways back, as a caller sees them; probe 22: forks have fresh identities."""

import asyncio
import json

import pytest

import atoll
import atoll.sync
from atoll import errors
from conformance.attributes import set_attributes, tell_attributes

pytestmark = [
    pytest.mark.container,  # the fake runtime's sandboxes share the host's files
    pytest.mark.beyond_pods("snapshots, forks"),
]


async def text(box: atoll.Sandbox, command: str) -> str:
    return (await box.exec(command, check=True)).stdout


async def test_a_sandbox_goes_back_to_what_it_was(sandbox: atoll.Sandbox) -> None:
    await text(sandbox, "mkdir -p d && echo then > d/f && chmod 600 d/f && ln -s d/f l")
    snapshot = await sandbox.snapshot("then")
    await text(sandbox, "echo now > d/f; rm l; touch new; rm -rf /workspace/gone; cd d; export A=1")
    info = await sandbox.restore(snapshot)
    assert (info.state, info.reason) == ("stopped", "restored")
    assert await text(sandbox, "cd /workspace; cat l; find d/f -printf '%m '; ls") == (
        "then\n600 d\nl\n"
    )
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


async def test_two_forks_have_identities_of_their_own(sandbox: atoll.Sandbox, level: str) -> None:
    await text(sandbox, "true")
    forks = await sandbox.fork(count=2)
    try:
        told = "cat /etc/machine-id; python3 -c 'import uuid; print(uuid.uuid4())'; hostname"
        if level != "gvisor":  # which says 0 of every file system
            told += "; cat /proc/sys/kernel/random/uuid; stat -fc %i /"
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


async def exported(env: atoll.Environment, snapshot: atoll.Snapshot) -> bytes:
    return b"".join([piece async for piece in env.Sandbox.export_snapshot(snapshot)])


async def test_a_snapshot_leaves_as_one_file_and_comes_back(
    sandbox: atoll.Sandbox, url: str
) -> None:
    await text(
        sandbox,
        "mkdir -p d/e; head -c 3M /dev/urandom > d/big; ln d/big d/hard; ln -s big d/soft;"
        " printf kept > 'd/e/häuser'; chown 7:8 d/e; chmod 2750 d/e; rm /etc/issue;"
        " mv /usr/share/doc /usr/share/moved; sync",
    )
    tell = (
        "cd /; find workspace usr/share/moved etc/issue usr/share/doc -printf"
        " '%p %y %m %u:%g %l\\n' -type d -o -printf '%p %n\\n' 2>&1 | sort;"
        " sha256sum workspace/d/big workspace/d/e/*"
    )
    before = await text(sandbox, f"({tell}) || true")
    snapshot = await sandbox.snapshot("first", labels={"a": "b"})
    async with atoll.connect(url) as env:
        file = await exported(env, snapshot)
        await env.Sandbox.delete_snapshot(snapshot)
        again = await env.Sandbox.import_snapshot(iter([file[:1_000], file[1_000:]]))
        assert again.id != snapshot.id
        assert (again.name, again.labels, again.image) == ("first", {"a": "b"}, snapshot.image)
        await text(sandbox, "rm -rf d")
        await sandbox.restore(again)
        assert await text(sandbox, f"({tell}) || true") == before
        await env.Sandbox.delete_snapshot(again)


async def test_attributes_and_access_lists_are_in_the_file(
    sandbox: atoll.Sandbox, url: str, level: str
) -> None:
    await text(sandbox, "mkdir -p p/d; echo x > p/f; echo y > p/d/g")
    await set_attributes(sandbox, level)
    assert (await text(sandbox, tell_attributes())).count("posix_acl") == 2
    # Access lists name users, of whom there is one without root (docs/snapshots.md).
    tell = tell_attributes("user.") if level == "bwrap" else tell_attributes()
    before = await text(sandbox, tell)
    snapshot = await sandbox.snapshot()
    async with atoll.connect(url) as env:
        file = await exported(env, snapshot)
        await env.Sandbox.delete_snapshot(snapshot)
        again = await env.Sandbox.import_snapshot(file)
        await text(sandbox, "rm -r p")
        await sandbox.restore(again)
        assert await text(sandbox, tell) == before
        lists = 0 if level == "bwrap" else 2
        assert (await text(sandbox, tell_attributes())).count("posix_acl") == lists
        await env.Sandbox.delete_snapshot(again)


async def test_a_file_that_was_cut_or_changed_is_refused(sandbox: atoll.Sandbox, url: str) -> None:
    await text(sandbox, "head -c 1M /dev/urandom > f")
    snapshot = await sandbox.snapshot()
    async with atoll.connect(url) as env:
        file = await exported(env, snapshot)
        line = file.index(b"\n")
        told = json.loads(file[:line].removeprefix(b"ATOLL-SNAPSHOT "))
        told["digest"] = "sha256:" + "a" * 64
        foreign = b"ATOLL-SNAPSHOT " + json.dumps(told).encode() + file[line:]
        before = len(await env.Sandbox.snapshots(limit=1_000))
        for broken, error in (
            (b"", errors.ValidationFailedError),
            (b"x" * 300_000, errors.ValidationFailedError),
            (file[line + 1 :], errors.ValidationFailedError),
            (file[: line + 1], errors.ValidationFailedError),
            (file[: len(file) // 2], errors.ValidationFailedError),
            (file + b"x", errors.ValidationFailedError),
            (file[: line + 500] + b"\0" * 99 + file[line + 599 :], errors.ValidationFailedError),
            (file.replace(b'"sandbox"', b'"Sandbox"', 1), errors.ValidationFailedError),
            (file[:-1], errors.ValidationFailedError),
            (foreign, errors.ImageNotFoundError),
        ):
            with pytest.raises(error):
                await env.Sandbox.import_snapshot(broken)
        assert len(await env.Sandbox.snapshots(limit=1_000)) == before
        await env.Sandbox.delete_snapshot(snapshot)


async def test_a_snapshot_is_the_image_of_new_sandboxes(sandbox: atoll.Sandbox, url: str) -> None:
    await text(sandbox, "echo prepared > f; rm /etc/issue")
    await sandbox.set_env_vars({"SECRET": "of the origin"})
    snapshot = await sandbox.snapshot()
    async with atoll.connect(url) as env:
        new = atoll.get_sandbox(env.Sandbox, f"{sandbox.id}-new", image=snapshot.id)
        try:
            assert await text(new, "cat f; ls /etc/issue || true; echo $SECRET") == "prepared\n\n"
            assert (await new.info()).image == snapshot.image
            await env.Sandbox.delete_snapshot(snapshot)
            await new.sleep()
            assert await text(new, "cat f") == "prepared\n"
            other = atoll.get_sandbox(env.Sandbox, f"{sandbox.id}-other", image=snapshot.id)
            with pytest.raises(errors.SnapshotNotFoundError):
                await other.exec("true")
        finally:
            await new.destroy()


async def test_what_changed_is_a_patch_that_applies(sandbox: atoll.Sandbox) -> None:
    await text(sandbox, "mkdir w; cd w; git init -q; printf '1\\n2\\n3\\n' > edited; echo x > gone")
    snapshot = await sandbox.snapshot()
    await text(
        sandbox,
        "cd w; printf '1\\ntwo\\n3' > edited; rm gone; echo new > new; chmod +x new;"
        " head -c 10 /dev/zero > binary; sed -i s/Debian/Mine/ /etc/issue",
    )
    patch = await (await sandbox.diff(snapshot)).patch()
    assert b"# /workspace/w/binary: created, binary, 10 bytes\n" in patch
    assert b"-2\n-3\n+two\n+3\n\\ No newline at end of file\n" in patch
    assert b"\n-Debian GNU/Linux" in patch
    tell = "cd /workspace/w; find * -printf '%m %f\\n' | sort; cat edited new /etc/issue"
    after = await text(sandbox, f"rm /workspace/w/binary; {tell}")
    await sandbox.restore(snapshot)
    await sandbox.write_file("/tmp/p", patch)
    assert await text(sandbox, f"cd /; git apply /tmp/p && {tell}") == after


async def test_a_command_can_be_undone(sandbox: atoll.Sandbox, url: str) -> None:
    await text(sandbox, "echo before > f")
    done = await sandbox.exec("echo after > f; (exit 3)", snapshot_before=True)
    assert (done.exit_code, done.to_dict()["snapshotId"]) == (3, done.snapshot_id)
    with pytest.raises(errors.CommandFailedError) as failed:
        await sandbox.exec("rm f; false", snapshot_before=True, check=True)
    second = failed.value.context["snapshot"]
    assert failed.value.result.snapshot_id == second
    await sandbox.restore(second)
    assert await text(sandbox, "cat f") == "after\n"
    await sandbox.restore(done.snapshot_id or "")
    assert await text(sandbox, "cat f") == "before\n"
    assert (await sandbox.exec("true")).snapshot_id is None
    async with atoll.connect(url) as env:
        names = [found.name for found in await env.Sandbox.snapshots(sandbox=sandbox.id)]
    assert names == ["before: echo after > f; (exit 3)", "before: rm f; false"]


def undone_blocking(url: str, id: str) -> str:
    with atoll.sync.connect(url) as env:
        box = atoll.sync.get_sandbox(env.Sandbox, id)
        done = box.exec("rm f; false", snapshot_before=True)
        box.restore(done.snapshot_id or "")
        return box.exec("cat f", check=True).stdout


async def test_a_command_can_be_undone_by_the_blocking_client_and_in_a_session(
    sandbox: atoll.Sandbox, url: str
) -> None:
    await text(sandbox, "echo before > f")
    assert await asyncio.to_thread(undone_blocking, url, sandbox.id) == "before\n"
    session = await sandbox.create_session(id="s")
    done = await session.exec("rm f; false", snapshot_before=True)
    await sandbox.restore(done.snapshot_id or "")
    assert await text(sandbox, "cat f") == "before\n"


async def test_of_many_forks_those_that_fail_say_why_and_the_others_are_there(
    sandbox: atoll.Sandbox, url: str
) -> None:
    await text(sandbox, "echo origin > f")
    name = f"{sandbox.id}-f"[-60:]
    async with atoll.connect(url) as env:
        taken = atoll.get_sandbox(env.Sandbox, f"{name}-2")
        await text(taken, "echo other > f")
        forks = await sandbox.fork(name, count=3)
        try:
            assert [fork.id for fork in forks] == [f"{name}-1", f"{name}-3"]
            assert [(id, error.code) for id, error in forks.errors.items()] == [
                (taken.id, "SANDBOX_ALREADY_EXISTS")
            ]
            assert [await text(fork, "cat f") for fork in forks] == ["origin\n"] * 2
            assert await text(taken, "cat f") == "other\n"
        finally:
            await asyncio.gather(*(box.destroy() for box in (taken, *forks)))
