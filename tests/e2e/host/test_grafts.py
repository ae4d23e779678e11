import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from atoll.errors import (
    BucketUnmountError,
    ContainerNotReadyError,
    InvalidMountConfigError,
    SecurityError,
)
from atoll.host import grafts, linux

pytestmark = pytest.mark.e2e

NAME = "atoll-graft-test"


@pytest.fixture
def pid(tmp_path: Path) -> Iterator[int]:
    """A process with a mount namespace of its own."""
    if os.geteuid():
        pytest.skip("needs root")
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", "echo; read x"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout
        process.stdout.readline()
        yield process.pid
        process.kill()


@pytest.fixture
def mount() -> Iterator[int]:
    context = linux.fsopen("tmpfs")
    linux.fsconfig(context, "source", NAME)
    found = linux.fsmount(context)
    os.close(context)
    yield found
    with suppress(OSError):
        os.close(found)


async def test_it_is_seen_there_and_nowhere_else(pid: int, mount: int, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    await grafts.attach(pid, str(folder), mount, 20)
    os.close(mount)  # a use of it like any other
    assert [m.target for m in grafts.mounts_of(pid) if m.source == NAME] == [folder]
    assert not os.path.ismount(folder)
    with pytest.raises(InvalidMountConfigError):
        grafts.check(pid, str(folder))
    inside = Path(f"/proc/{pid}/root{folder}")
    with (inside / "f").open("w"), pytest.raises(BucketUnmountError) as caught:
        await grafts.detach(pid, NAME)
    assert caught.value.context["reason"] == "busy"
    assert await grafts.detach(pid, NAME)
    assert not await grafts.detach(pid, NAME)


async def test_links_and_what_is_there_are_refused(pid: int, mount: int, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    (tmp_path / "link").symlink_to("/")
    for path, error in (
        ("full", InvalidMountConfigError),
        ("full/file", InvalidMountConfigError),
        ("missing", InvalidMountConfigError),
        ("link", SecurityError),
        ("link/tmp", SecurityError),
    ):
        with pytest.raises(error):
            await grafts.attach(pid, str(tmp_path / path), mount, 20)
    grafts.check(pid, str(tmp_path / "missing/too"))
    assert not [m for m in grafts.mounts_of(pid) if m.source == NAME]


async def test_a_process_that_is_gone_is_a_sandbox_that_has_ended(mount: int) -> None:
    for call in (grafts.attach(1 << 22, "/tmp", mount, 5), grafts.detach(1 << 22, NAME)):
        with pytest.raises(ContainerNotReadyError):
            await call
