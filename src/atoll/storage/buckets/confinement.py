"""Where the client of a bucket runs: as nobody, among nothing but its own files.

It sees a file system that is read-only but for its cache, only its own processes, and the network
that it is given. It has no privilege to mount: the engine opens the device, and a program in the
place of ``fusermount`` hands that over.
"""

import os
import sys
from pathlib import Path

import msgspec

from atoll.host import process
from atoll.storage.buckets.rclone import FOLDER

MEMORY_MB = 1_024
"""Most memory a client may have, stacks of its threads included: a listing is in memory as a whole,
and a server can have it be endless. A client that dies of it is started again by the next look."""

_FREED_FROM_MB = 128
"""Where rclone's runtime begins to give memory up rather than to take more. Measured: resident are
150 MB after a look at each of 10,000 objects."""

_PYTHON = f"/opt/python/bin/python{sys.version_info.major}.{sys.version_info.minor}"
_HAND_OVER = f"""#!{_PYTHON} -IS
import array, os, socket
if "_FUSE_COMMFD" in os.environ:
    with socket.socket(fileno=int(os.environ["_FUSE_COMMFD"])) as caller:
        rights = array.array("i", [4])
        caller.sendmsg([b"\\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
"""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a client runs.

    `folder` is its own and nobody else's; `uid` and `gid` are what it runs as; `owner` is whom
    files in the bucket belong to; `netns` None is the host's network; `reserve_mb` of the disk stay
    free; `cache` is where what is not sent yet lies, None: in `folder`; `local` is a folder of the
    host that it serves, without any network.
    """

    folder: Path
    uid: int
    owner: int
    netns: Path | None
    resolv_conf: Path
    gid: int | None = None
    reserve_mb: int = 0
    cache: Path | None = None
    local: Path | None = None

    @property
    def caching(self) -> Path:
        """The folder of its cache."""
        return (self.cache or self.folder) / "cache"


def prepare(place: Place, secret: str) -> None:
    """Make what a client finds; *secret* is for its eyes only."""
    folder, uid = place.folder, place.uid
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in (place.caching, folder / "root"):
        path.mkdir(mode=0o700, exist_ok=True)
        os.chown(path, uid, uid)
    (folder / "hand-over").write_text(_HAND_OVER)
    (folder / "hand-over").chmod(0o755)
    fd = os.open(folder / "secret", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as file:
        os.fchown(fd, uid, uid)
        file.write(secret)


def argv(place: Place, command: list[str]) -> list[str]:
    """Return the command line of *command*, confined to its place."""
    enter = ["nsenter", f"--net={place.netns}", "--"] if place.netns else []
    # A core would hold the credentials.
    most = MEMORY_MB << 20
    limits = ["prlimit", "--core=0:0", "--nofile=4096:4096", f"--data={most}:{most}", "--"]
    gid = place.uid if place.gid is None else place.gid
    drop = ["setpriv", f"--reuid={place.uid}", f"--regid={gid}", "--clear-groups",
            "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "--"]  # fmt: skip
    return [*enter, "bwrap", *_view(place), *limits, *drop, *command]


def _view(place: Place) -> list[str]:
    folder = place.folder
    read_only = [
        ("/usr", "/usr"), (sys.base_prefix, "/opt/python"), ("/etc/ssl", "/etc/ssl"),
        (folder / "secret", "/secret"), (place.resolv_conf, "/etc/resolv.conf"),
        *((folder / "hand-over", helper) for helper in _helpers()),
    ]  # fmt: skip
    found = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--dir", "/opt", "--dir", "/etc"]
    found += ["--symlink", "usr/bin", "/bin", "--proc", "/proc", "--dev", "/dev"]
    for library in ("lib", "lib64"):
        found += ["--symlink", f"usr/{library}", f"/{library}"]
    for source, target in read_only:
        found += ["--ro-bind", str(source), str(target)]
    if place.local:
        found += ["--unshare-net", "--bind", str(place.local), FOLDER]
    elif place.netns is None:
        found += ["--ro-bind-try", "/etc/hosts", "/etc/hosts"]
    found += ["--setenv", "GOMEMLIMIT", f"{_FREED_FROM_MB}MiB"]
    return [*found, "--bind", str(place.caching), "/tmp", "--bind", str(folder / "root"), "/mnt",
            "--chdir", "/"]  # fmt: skip


def _helpers() -> list[str]:
    """Return where a client looks for the program that mounts, by s3fs's name and by rclone's."""
    names = (process.find(name) for name in ("fusermount3", "fusermount"))
    return sorted({os.path.realpath(name) for name in names if name})
