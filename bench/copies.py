"""Copies of a workspace: forks, snapshots, backups."""

import time

import atoll
from bench.table import Report, Row, Samples

_FILES = 100


async def forks(sandbox: atoll.Sandbox, size: int, report: Report) -> None:
    """A fork of a workspace of *size* bytes against `cp -a` of it inside, which copies each block."""
    await sandbox.exec(
        f"mkdir w && for i in $(seq {_FILES}); do head -c {size // _FILES} /dev/urandom > w/$i; done",
        timeout=None,
        check=True,
    )
    copies, ours = [], []
    for _ in range(3):
        start = time.perf_counter()
        await sandbox.exec("cp -a --reflink=never w copy && sync", timeout=None, check=True)
        copies.append(time.perf_counter() - start)
        await sandbox.exec("rm -r copy; sync", timeout=None, check=True)
    for _ in range(5):
        start = time.perf_counter()
        (fork,) = await sandbox.fork()
        ours.append(time.perf_counter() - start)
        await fork.destroy()
    name = f"fork of a {size / 1e9:g} GB workspace"
    report.add(Row(name, Samples(ours), "cp -a of it, blocks copied", Samples(copies), 0.02))


async def backups(sandbox: atoll.Sandbox, size: int, report: Report) -> None:
    """Backup and restore of the workspace that `forks` made, against tar inside."""
    packing, unpacking = [], []
    for _ in range(3):
        start = time.perf_counter()
        await sandbox.exec("tar -cf all.tar w && sync", timeout=None, check=True)
        packing.append(size / 1e6 / (time.perf_counter() - start))
        start = time.perf_counter()
        await sandbox.exec("mkdir t && tar -C t -xf all.tar && sync", timeout=None, check=True)
        unpacking.append(size / 1e6 / (time.perf_counter() - start))
        await sandbox.exec("rm -r t all.tar; sync", timeout=None, check=True)
    made, restored, again = [], [], []
    for _ in range(3):
        start = time.perf_counter()
        backup = await sandbox.create_backup(dir="/workspace/w", compression="none")
        made.append(size / 1e6 / (time.perf_counter() - start))
        start = time.perf_counter()
        await sandbox.restore_backup(backup)
        restored.append(size / 1e6 / (time.perf_counter() - start))
        start = time.perf_counter()
        await sandbox.restore_backup(backup)
        again.append(size / 1e6 / (time.perf_counter() - start))
    for name, ours, floor in (
        ("backup", made, packing),
        ("restore of a backup, the first", restored, unpacking),
        ("restore of a backup again", again, unpacking),
    ):
        row = Row(
            name, Samples(ours), "tar inside", Samples(floor), 0.5, at_least=True, unit="MB/s"
        )
        report.add(row)
