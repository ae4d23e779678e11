"""Case L08 and "Backups" of the specification: archives of directories, put back as a whole."""

import asyncio
import json

import pytest

import atoll
from atoll import errors
from conformance.attributes import set_attributes, tell_attributes

pytestmark = pytest.mark.container  # the fake runtime's sandboxes share the host's files

TREE = r"""
mkdir -p p/node_modules/x p/sub/node_modules p/sub/build p/empty && cd p
echo secret > private; chmod 600 private; echo run > tool; chmod 755 tool
ln -s private link; ln private hard; mkdir -p 'ünï cödé 文'; echo x > 'ünï cödé 文/ f'
echo n > node_modules/x/n; echo n > sub/node_modules/n; echo b > sub/build/b
touch a.log keep.log sub/deep.log; printf '*.log\n!keep.log\n' > .gitignore; echo /build > sub/.gitignore
chown 1234:5678 empty; chmod 751 .
"""


async def text(box: atoll.Sandbox, command: str) -> str:
    return (await box.exec(command, check=True)).stdout


async def test_a_directory_comes_back_as_it_was(sandbox: atoll.Sandbox) -> None:
    await text(sandbox, TREE)
    tell = "cd /workspace/p && find . -printf '%P|%y|%m|%U:%G|%l\\n' | sort; cat hard"
    around = "ls -A; cd /; ls -A"
    before, beside = await text(sandbox, tell), await text(sandbox, around)
    backup = await sandbox.create_backup(dir="/workspace/p", name="tree")
    assert (backup.dir, backup.name, backup.sandbox) == ("/workspace/p", "tree", sandbox.id)
    assert len(backup.sha256) == 64
    await text(sandbox, "cd /workspace/p; rm -rf private 'ünï cödé 文' empty; echo junk > junk")
    done = await sandbox.restore_backup(json.loads(json.dumps(backup.to_dict())))
    assert (done.dir, done.files) == ("/workspace/p", backup.files)
    assert await text(sandbox, tell) == before
    assert await text(sandbox, around) == beside


async def test_attributes_and_access_lists_come_back(sandbox: atoll.Sandbox, level: str) -> None:
    """Set by the programs of the sandbox, told by it, where its kernel has them."""
    await text(sandbox, "mkdir -p p/d; echo x > p/f; echo y > p/d/g")
    await set_attributes(sandbox, level)
    before = await text(sandbox, tell_attributes())
    assert "user.note" in before
    assert before.count("posix_acl") == 2
    backup = await sandbox.create_backup(dir="/workspace/p")
    await text(sandbox, "rm -r p/*; echo junk > p/f")
    await sandbox.restore_backup(backup)
    assert await text(sandbox, tell_attributes()) == before


async def test_exactly_what_git_would_keep_is_kept(sandbox: atoll.Sandbox) -> None:
    await text(sandbox, TREE)
    backup = await sandbox.create_backup(
        dir="/workspace/p", gitignore=True, excludes=["**/node_modules"]
    )
    await sandbox.restore_backup(backup, dir="/tmp/copy/here")
    listed = await text(
        sandbox,
        "cd /workspace/p && git init -q . && printf 'node_modules\\n' >> .git/info/exclude"
        " && git -c core.quotepath=off ls-files -co --exclude-standard; rm -rf .git; echo --;"
        " cd /tmp/copy/here && find . ! -type d -printf '%P\\n'",
    )
    by_git, _, copied = listed.partition("--\n")
    assert sorted(by_git.splitlines()) == sorted(copied.splitlines())


async def test_a_wrong_place_is_refused_and_nothing_is_touched(sandbox: atoll.Sandbox) -> None:
    """Probe 4: the directory is swapped for a link before it is backed up or put back."""
    await text(sandbox, "mkdir d; echo kept > d/f")
    backup = await sandbox.create_backup(dir="/workspace/d")
    await text(sandbox, "rm -r d; ln -s /etc d; mkdir /tmp/real; ln -s /tmp/real /tmp/linked")
    tell = "find /etc -maxdepth 1 -printf '%p %m %s %T@\\n' | sort | md5sum"
    etc = await text(sandbox, tell)
    with pytest.raises(errors.SecurityError):
        await sandbox.create_backup(dir="/workspace/d")
    for target in (None, "/tmp/linked", "/tmp/linked/below"):
        with pytest.raises(errors.SecurityError):
            await sandbox.restore_backup(backup, dir=target)
    for outside in ("/etc", "/workspace/../etc", "relative", "/"):
        with pytest.raises(errors.InvalidBackupConfigError):
            await sandbox.restore_backup(backup, dir=outside)
        with pytest.raises(errors.InvalidBackupConfigError):
            await sandbox.create_backup(dir=outside)
    assert await text(sandbox, tell) == etc
    assert await text(sandbox, "cd /tmp/real; ls -A") == ""
    with pytest.raises(errors.FileNotFoundError):
        await sandbox.create_backup(dir="/workspace/none")


async def test_two_at_once_and_into_another_sandbox(sandbox: atoll.Sandbox, url: str) -> None:
    await text(sandbox, "mkdir d e; head -c 3000000 /dev/urandom | tee d/f > e/f; mkdir t")
    one, two = await asyncio.gather(
        sandbox.create_backup(dir="/workspace/d"), sandbox.create_backup(dir="/workspace/e")
    )
    assert one.content_size == two.content_size == 3_000_000
    await asyncio.gather(*(sandbox.restore_backup(b, dir="/workspace/t") for b in (one, two, one)))
    assert await text(sandbox, "cmp d/f t/f && ls -A && cd t && ls -A") == "d\ne\nt\nf\n"
    async with atoll.connect(url) as env:
        other = atoll.get_sandbox(env.Sandbox, sandbox.id + "-b")
        await other.restore_backup(one)
        assert (await text(other, "wc -c < d/f")) == "3000000\n"
        await other.destroy()
        page = await env.backups.list(sandbox=sandbox.id)
        assert {(b.id, b.size, b.sha256) for b in page} == {
            (b.id, b.size, b.sha256) for b in (one, two)
        }
        await env.backups.delete(one)
        with pytest.raises(errors.BackupNotFoundError):
            await sandbox.restore_backup(one)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_gigabytes_in_flat_memory(sandbox: atoll.Sandbox, level: str) -> None:
    gigabytes = (
        1 if level == "bwrap" else 3
    )  # no file of a sandbox without root is larger than its disk
    await text(
        sandbox,
        f"mkdir d && truncate -s {gigabytes}G d/sparse && head -c 50M /dev/urandom > d/f",
    )
    backup = await sandbox.create_backup(dir="/workspace/d")
    assert backup.content_size == (gigabytes << 30) + (50 << 20)
    assert backup.size < 60 << 20
    await text(sandbox, "mv d/f .; rm -r d")
    await sandbox.restore_backup(backup)
    assert await text(sandbox, "cmp f d/f && find d/sparse -printf %s") == f"{gigabytes << 30}"
    if (
        level == "gvisor"
    ):  # which tells holes as data (docs/isolation.md): what is on the disk counts
        assert (await sandbox.metrics()).disk < 1 << 30
    else:
        assert int(await text(sandbox, "du -sm d | cut -f1")) < 100
