"""An engine of a user who is not root, for tests that run as root: directories, interpreter, image.

The user is a number without an account. Its base image is that of root's store, by a mount that
shows root's files as the user's: made and taken away in no time, and nothing is copied.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

import atoll
from atoll.host import linux
from atoll.host.mounts import mount_at, read_mounts
from atoll.images.layout import Places
from atoll.runtime.bwrap import groups
from atoll.runtime.oci import cgroup
from atoll.runtime.oci.cgroup_files import eventually
from atoll.settings import StorageSettings

_BASE_NAME = "atoll/base:latest"

UID = 400_000_000 + os.getpid()
"""Of nobody, and of this run alone: at its end all that runs as this user is killed."""


class User(NamedTuple):
    """The user's surroundings; `home` is removed at the end."""

    home: Path
    environment: Mapping[str, str]

    @property
    def python(self) -> Path:
        return self.home / "environment/bin/python"

    def argv(self, *command: str | Path) -> list[str]:
        """Return the command line that runs *command* as the user."""
        drop = [f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--inh-caps=-all"]
        return ["setpriv", *drop, "--", *map(str, command)]

    def run(self, *command: str | Path, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*command),
            env=dict(self.environment),
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=timeout,
        )


@contextmanager
def user() -> Iterator[User]:
    """Lend a user with a home, an interpreter and the base image in it."""
    home = Path(tempfile.mkdtemp(prefix="atoll-user-", dir="/tmp"))
    try:
        _make_interpreter(home)
        environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
        with _image(home / ".cache/atoll"):
            for folder, _, files in os.walk(home):
                if "layers" not in Path(folder).parts:
                    for name in (".", *files):
                        os.chown(Path(folder, name), UID, UID, follow_symlinks=False)
            yield User(home, environment)
    finally:
        for pid in processes():  # of a test that failed
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(home)  # the mounts below it are gone, and were read-only


def processes() -> list[int]:
    """Return all processes of the user that run, those inside sandboxes too."""
    numbers = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in numbers if _owner(pid) == UID]


def _owner(pid: int) -> int:
    try:
        ended = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return -1 if ended else Path(f"/proc/{pid}").stat().st_uid
    except (FileNotFoundError, ProcessLookupError):
        return -1


def outliving(pid: int) -> str:
    """Return which process of the user that outlives engines this one is; "": it is another."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        for name in ("network.gateway", "network.rootless.holder"):
            if f"atoll.{name}".encode() in words:
                return name
    return ""


@contextmanager
def engine(
    lent: User, *options: str, group: Path | str | None = None, **settings: str
) -> Iterator[dict[str, object]]:
    """Run an engine of the user and yield its ready line.

    Args:
        group: control group that it starts in.
        settings: of the engine, as variables without ``ATOLL_``.
    """
    reader, writer = os.pipe()
    variables = {f"ATOLL_{name.upper()}": value for name, value in settings.items()}
    with (lent.home / "engine.log").open("ab") as log:
        process = subprocess.Popen(
            _joining(group) + lent.argv(
                lent.python, "-m", "atoll.cli.main", "serve", "--port", "0",
                "--ready-fd", str(writer), *options,
            ),
            env={**lent.environment, **variables},
            cwd=lent.home,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(writer,),
        )  # fmt: skip
    os.close(writer)
    try:
        with os.fdopen(reader) as ready:
            line = ready.readline()
        assert line, (lent.home / "engine.log").read_text()
        yield json.loads(line)
    finally:
        process.terminate()
        process.wait()


def _joining(group: Path | str | None) -> list[str]:
    """What runs the rest of its command line in a group."""
    joined = f'echo 0 > "{group}/cgroup.procs" && exec "$@"'
    return ["sh", "-c", joined, "sh"] if group else []


@contextmanager
def delegated() -> Iterator[Path]:
    """Lend a control group of version 2 as systemd gives one to a user, with what controllers there are.

    Skips the test where version 2 is not mounted.
    """
    mount = cgroup.mounted().v2
    if mount is None:
        pytest.skip("no cgroup version 2 here")
    group = mount / f"atoll-test-{UID}"
    group.mkdir()
    try:
        os.setxattr(group, groups.MARK, b"1")
        for path in (group, *group.glob("cgroup.*")):
            if path.name in {
                group.name,
                "cgroup.procs",
                "cgroup.subtree_control",
                "cgroup.threads",
            }:
                os.chown(path, UID, UID)
        yield group
    finally:
        for folder, _, _ in os.walk(group, topdown=False):
            assert eventually(partial(_removed, folder), 10), f"{folder} is in use"


def _removed(folder: str) -> bool:
    with suppress(OSError):
        os.rmdir(folder)
    return not os.path.exists(folder)


def _make_interpreter(home: Path) -> None:
    """Make an environment with what this one has, of an interpreter that the user may run."""
    packages = [str(Path(atoll.__file__).parent.parent), *_site_packages()]
    program = sys.executable if _open_to_all(Path(sys.executable).resolve()) else _system_python()
    environment = home / "environment"
    subprocess.run([program, "-m", "venv", "--without-pip", environment], check=True)
    site = next(environment.glob("lib/python*/site-packages"))
    (site / "packages.pth").write_text("\n".join(packages))


def _site_packages() -> list[str]:
    return [path for path in sys.path if path.endswith("site-packages")]


def _system_python() -> str:
    """The system's interpreter of our version: ours may lie in root's home."""
    found = shutil.which(f"python3.{sys.version_info.minor}", path="/usr/bin:/usr/local/bin")
    assert found, "no interpreter that a user may run"
    return found


def _open_to_all(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents))


@contextmanager
def _image(cache: Path) -> Iterator[None]:
    """Make *cache* hold the base image of root's store."""
    of_root, own = Places(StorageSettings().cache_dir / "images"), Places(cache / "images")
    own.make()
    digest = of_root.reference(_BASE_NAME).read_text()
    shutil.copy(of_root.reference(_BASE_NAME), own.reference(_BASE_NAME))
    shutil.copy(of_root.record(digest), own.record(digest))
    layers = json.loads(of_root.record(digest).read_bytes())["layers"]
    with _seen_as_own({of_root.layer(one): own.layer(one) for one in layers}):
        yield


@contextmanager
def _seen_as_own(folders: Mapping[Path, Path]) -> Iterator[None]:
    ids = f"0 {UID} 1000"
    userns = linux.user_namespace(ids, ids)
    try:
        for source, target in folders.items():
            target.mkdir()
            clone = linux.open_tree(source)
            linux.mount_setattr(
                clone,
                attr_set=linux.MOUNT_ATTR_IDMAP | linux.MOUNT_ATTR_RDONLY,
                userns_fd=userns,
            )
            linux.move_mount(clone, target)
            os.close(clone)
        yield
    finally:
        os.close(userns)
        for target in folders.values():
            while mount_at(target, read_mounts()):  # is_mount overlooks a bind of the same disk
                linux.umount(target, linux.MNT_DETACH)
