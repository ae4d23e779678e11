"""The client of a bucket: s3fs, as nobody, among nothing but its own files.

It sees a file system that is read-only but for its cache, only its own processes, and the network
that it is given. It has no privilege to mount: the engine opens the device, and a program in the
place of ``fusermount`` hands that over. Credentials are a file that only it can read, and that is
removed once it has read it. It outlives the engine; what another engine needs to find it is in its
folder. Measured: 0.1 s until it answers.
"""

import asyncio
import os
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from atoll.errors import BucketMountError, RuntimeNotAvailableError
from atoll.host import process
from atoll.storage.buckets.options import Credentials, Source, told

TOOLS = ("s3fs", "bwrap", "setpriv", "prlimit", "nsenter")
PACKAGES = "apt-get install s3fs bubblewrap util-linux"

GRACE = 10.0
"""Seconds a client has to send what it holds, after its mount is gone."""

_PYTHON = f"/opt/python/bin/python{sys.version_info.major}.{sys.version_info.minor}"
_HAND_OVER = f"""#!{_PYTHON} -IS
import array, os, socket
if "_FUSE_COMMFD" in os.environ:
    with socket.socket(fileno=int(os.environ["_FUSE_COMMFD"])) as caller:
        rights = array.array("i", [3])
        caller.sendmsg([b"\\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
"""


class Running(msgspec.Struct, frozen=True):
    """A process, told from a later one of the same number by the moment it started."""

    pid: int
    started: str


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a client runs.

    `folder` is its own and nobody else's; `uid` is what it runs as; `owner` is whom files in the
    bucket belong to; `netns` None is the host's network; `reserve_mb` of the disk stay free.
    """

    folder: Path
    uid: int
    owner: int
    netns: Path | None
    resolv_conf: Path
    reserve_mb: int = 0


def start(source: Source, credentials: Credentials, place: Place, device: int) -> None:
    """Start a client that answers on *device*. Blocking; returns before it answers.

    Raises:
        RuntimeNotAvailableError: a program is missing.
    """
    require_tools()
    folder = place.folder
    _prepare(folder, credentials, place.uid)
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        pid = process.launch(_argv(source, place), [device], output=log)
    finally:
        os.close(log)
    running = Running(pid, _started(pid) or "")
    (folder / "process").write_bytes(msgspec.json.encode(running))


def require_tools() -> None:
    """Make sure that every program is there; raise as `start`."""
    missing = [
        tool for tool in TOOLS if shutil.which(tool, path="/usr/sbin:/usr/bin:/sbin:/bin") is None
    ]
    if missing:
        raise RuntimeNotAvailableError(
            f"this host lacks {', '.join(missing)}",
            context={"missing": missing},
            suggestion=PACKAGES,
        )


def _prepare(folder: Path, credentials: Credentials, uid: int) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("cache", "root"):
        (folder / name).mkdir(mode=0o700, exist_ok=True)
        os.chown(folder / name, uid, uid)
    (folder / "hand-over").write_text(_HAND_OVER)
    (folder / "hand-over").chmod(0o755)
    secret = os.open(folder / "secret", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(secret, "w") as file:
        os.fchown(secret, uid, uid)
        file.write(f"{credentials.access_key_id}:{credentials.secret_access_key}\n")


def _argv(source: Source, place: Place) -> list[str]:
    name = source.bucket + (f":/{source.prefix}" if source.prefix else "")
    ours = "auto_unmount,allow_other,passwd_file=/secret,tmpdir=/tmp"
    options = f"{ours},ensure_diskfree={place.reserve_mb},{told(source, place.owner)}"
    enter = ["nsenter", f"--net={place.netns}", "--"] if place.netns else []
    # A core would hold the credentials.
    limits = ["prlimit", "--core=0:0", "--nofile=4096:4096", "--"]
    drop = ["setpriv", f"--reuid={place.uid}", f"--regid={place.uid}", "--clear-groups",
            "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "--"]  # fmt: skip
    return [
        *enter,
        "bwrap",
        *_view(place),
        *limits,
        *drop,
        "s3fs",
        "-f",
        name,
        "/mnt",
        "-o",
        options,
    ]


def _view(place: Place) -> list[str]:
    folder = place.folder
    read_only = [
        ("/usr", "/usr"), (sys.base_prefix, "/opt/python"), ("/etc/ssl", "/etc/ssl"),
        (folder / "hand-over", "/usr/bin/fusermount3"), (folder / "secret", "/secret"),
        (place.resolv_conf, "/etc/resolv.conf"),
    ]  # fmt: skip
    found = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--dir", "/opt", "--dir", "/etc"]
    found += ["--symlink", "usr/bin", "/bin", "--proc", "/proc", "--dev", "/dev"]
    for library in ("lib", "lib64"):
        found += ["--symlink", f"usr/{library}", f"/{library}"]
    for source, target in read_only:
        found += ["--ro-bind", str(source), str(target)]
    if place.netns is None:
        found += ["--ro-bind-try", "/etc/hosts", "/etc/hosts"]
    return [*found, "--bind", str(folder / "cache"), "/tmp", "--bind", str(folder / "root"), "/mnt",
            "--chdir", "/"]  # fmt: skip


def forget_secret(folder: Path) -> None:
    """Remove the credentials: a client that answers has read them."""
    (folder / "secret").unlink(missing_ok=True)


def said(folder: Path) -> str:
    """Return the last complaint of a client, for an error message."""
    with suppress(OSError):
        lines = (folder / "log").read_text(errors="replace")[-4_096:].strip().splitlines()
        told = [line.partition("] ")[2] or line for line in lines if "[INF]" not in line]
        return " ".join(told[-3:])
    return ""


def failure(folder: Path, why: str) -> BucketMountError:
    """Return the error of a client that does not serve its bucket."""
    message = said(folder)
    return BucketMountError(
        f"the bucket's client does not answer: {message or why}", context={"tool": "s3fs"}
    )


def alive(folder: Path) -> bool:
    """Whether the client of this folder runs."""
    found = _recorded(folder)
    return found is not None and _started(found.pid) == found.started


async def stop(folder: Path, grace: float = GRACE) -> None:
    """End a client whose mount is gone, and forget its folder. Idempotent.

    It ends by itself, after it has sent what it holds; after *grace* seconds it is killed.
    """
    end = asyncio.get_running_loop().time() + grace
    while (found := _recorded(folder)) and alive(folder):
        _reap(found.pid)
        if asyncio.get_running_loop().time() > end:
            with suppress(ProcessLookupError):
                os.killpg(found.pid, signal.SIGKILL)
        await asyncio.sleep(0.02)
    if found:
        _reap(found.pid)
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def stop_all(folder: Path) -> None:
    """End all clients of a start whose mounts went with it. Idempotent."""
    if os.path.isdir(folder):  # noqa: PTH112, ASYNC240 - of the engine's own disk
        await asyncio.gather(*(stop(folder / name) for name in os.listdir(folder)))  # noqa: PTH208
        os.rmdir(folder)  # noqa: PTH106


def _recorded(folder: Path) -> Running | None:
    try:
        return msgspec.json.decode((folder / "process").read_bytes(), type=Running)
    except (OSError, msgspec.MsgspecError):
        return None


def _started(pid: int) -> str | None:
    """Return when a process started, in ticks since boot; None when there is none or it ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {"Z", "X"} else fields[19]


def _reap(pid: int) -> None:
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
