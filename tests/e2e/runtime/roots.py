"""Small root file systems for tests, made once from packages and kept in a cache.

Each is a directory with ids shifted to `ID_BASE`; a test gets an overlay on top of it.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("ATOLL_TEST_CACHE", "/var/cache/atoll-test"))
ID_BASE = 0x1000_0000

_LINKED = 'int main(void) { return __builtin_printf("musl says hi\\n") < 0; }'


def busybox(root: Path) -> None:
    """Nothing but one static program: no libc, no Python, no bash."""
    for name in ("bin", "etc", "tmp", "root", "var", "usr/bin", "workspace"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    shutil.copy(_program("busybox", "busybox-static"), root / "bin/busybox")
    applets = subprocess.run([root / "bin/busybox", "--list"], capture_output=True, check=True)
    for applet in applets.stdout.decode().split():
        if applet != "busybox":
            (root / "bin" / applet).symlink_to("busybox")
    (root / "etc/passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n"
    )
    (root / "etc/group").write_text("root:x:0:\nuser:x:1000:\n")


def musl(root: Path) -> None:
    """musl as the only libc, and a program linked against it."""
    busybox(root)
    (root / "lib").mkdir()
    source = root / "hi.c"
    source.write_text(_LINKED)
    gcc = _program("musl-gcc", "musl-tools")
    subprocess.run([gcc, "-O2", "-o", root / "usr/bin/hi", source], check=True)
    source.unlink()
    loader = next(Path("/lib").glob("ld-musl-*.so.1"))
    shutil.copy(loader.resolve(), root / "lib" / loader.name)


def debian(root: Path) -> None:
    """Debian's smallest set with bash and apt: as users' images are, without Python."""
    tool = _program("mmdebstrap", "mmdebstrap")
    subprocess.run([tool, "-q", "--variant=minbase", "bookworm", root], check=True)
    (root / "workspace").mkdir()


_MAKERS: dict[str, Callable[[Path], None]] = {"busybox": busybox, "musl": musl, "debian": debian}


def lower(kind: str) -> Path:
    """Return the cached root *kind*, making it when it is not there."""
    CACHE.mkdir(parents=True, exist_ok=True)
    done = CACHE / f"{kind}-{ID_BASE:x}"
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            draft = CACHE / f"{kind}.draft"
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            _MAKERS[kind](draft)
            _shift(draft)
            draft.rename(done)
    return done


def _shift(top: Path) -> None:
    """Give every file the owner that root or a user inside has on the host."""
    for directory, names, files in os.walk(top):
        for path in (directory, *(os.path.join(directory, name) for name in names + files)):
            status = os.lstat(path)
            if status.st_uid >= ID_BASE:
                continue
            os.lchown(path, ID_BASE + status.st_uid, ID_BASE + status.st_gid)
            if not os.path.islink(path):
                os.chmod(path, status.st_mode & 0o7777)  # chown takes setuid away


def _program(name: str, package: str) -> str:
    if path := shutil.which(name):
        return path
    pytest.skip(f"{name} is missing (Debian: apt install {package})")
