import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from atoll.network.gateway.keeper import Keeper
from atoll.network.gateway.protocol import Call, HandlerAnswer, Unanswered

pytestmark = pytest.mark.e2e

UID = 0x6FFF_FFF1


async def no_handler(_: Call) -> HandlerAnswer:
    return Unanswered(reason="none")


async def test_the_gateway_is_nobody_and_sees_its_logs_only(tmp_path: Path) -> None:
    """Whoever takes it over has no file of the host, no capability and no way to get one."""
    keeper = Keeper(tmp_path / "egress", (), no_handler, lambda _: None, uid=UID)
    await keeper.open()
    try:
        pid = (await keeper.status()).pid
        status = dict(
            line.split(":\t", 1)
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            if ":\t" in line
        )
        assert status["Uid"].split() == status["Gid"].split() == [str(UID)] * 4
        assert status["Groups"].strip() == ""
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(status[kind], 16) == 0
        assert status["NoNewPrivs"] == "1"
        assert status["Seccomp"] == "2"
        for thread in Path(f"/proc/{pid}/task").iterdir():
            assert "Seccomp:\t2\n" in (thread / "status").read_text()
        mounts = Path(f"/proc/{pid}/mounts").read_text().splitlines()
        assert [line.split()[1] for line in mounts] == ["/", "/keys"]
        assert all("nosuid,nodev,noexec" in line for line in mounts)
        seen = await asyncio.to_thread(lambda: sorted(Path(f"/proc/{pid}/root").iterdir()))
        assert [path.name for path in seen] == ["keys"]
    finally:
        await keeper.close(stop=True)


ATTEMPTS = """
import ctypes, json, mmap, os, signal, socket, sys, threading
from pathlib import Path
from atoll.network.gateway import confinement

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

def called(name, *args):
    if getattr(libc, name)(*args) < 0:
        raise OSError(ctypes.get_errno(), name)

ATTEMPTS = {
    "fork": os.fork,
    "exec": lambda: os.execv("/proc/self/exe", ["x"]),
    "spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
    "ptrace": lambda: called("ptrace", 0, 0, 0, 0),
    "read another": lambda: called("process_vm_readv", os.getppid(), None, 0, None, 0, 0),
    "kill": lambda: os.kill(os.getppid(), 0),
    "mount": lambda: called("mount", b"x", b"/keys", b"tmpfs", 0, None),
    "namespace": lambda: called("unshare", 0x10000000),
    "chroot": lambda: os.chroot("/keys"),
    "packets": lambda: socket.socket(17, socket.SOCK_RAW),
    "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
    "alg": lambda: socket.socket(38, socket.SOCK_SEQPACKET),
    "raw": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1),
    "memfd": lambda: os.memfd_create("x"),
    "code": lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC),
}
confinement.confine(Path(sys.argv[1]), int(sys.argv[2]))
told = {}
for name, attempt in ATTEMPTS.items():
    try:
        told[name] = f"done: {attempt()!r}"
    except OSError as error:
        told[name] = error.errno
thread = threading.Thread(target=lambda: told.update(thread="ran"))
thread.start()
thread.join()
socket.socket().close()
print(json.dumps(told))
"""


def test_what_the_gateway_needs_no_more_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    argv = [sys.executable, "-c", ATTEMPTS, str(folder), str(UID)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told.pop("thread") == "ran"
    assert set(told.values()) == {1}, told
