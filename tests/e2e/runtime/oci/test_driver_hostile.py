"""Roots that hostile root inside prepared for the next start of its own sandbox."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from atoll.errors import ContainerUnavailableError
from atoll.runtime.base import ContainerSpec, Mount
from e2e.runtime.boxes import Bench, Box
from e2e.runtime.roots import ID_BASE

pytestmark = pytest.mark.e2e

Prepare = Callable[[Path, Path], None]
"""Changes a root (first) so that something might happen to a directory of the host (second)."""


def replace(path: Path, link: str) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(link)


def machine_id_is_a_link_out(root: Path, outside: Path) -> None:
    replace(root / "etc/machine-id", f"{outside}/made")


def machine_id_climbs_out(root: Path, outside: Path) -> None:
    replace(root / "etc/machine-id", f"{'../' * 30}{outside}/made")


def etc_is_a_link_out(root: Path, outside: Path) -> None:
    replace(root / "etc", str(outside))


def dev_is_a_link_out(root: Path, outside: Path) -> None:
    replace(root / "dev", str(outside))


def sys_is_a_link_out(root: Path, outside: Path) -> None:
    replace(root / "sys", str(outside))


def proc_is_a_link(root: Path, outside: Path) -> None:
    replace(root / "proc", "tmp")


def proc_is_a_file(root: Path, outside: Path) -> None:
    (root / "proc").write_text("")


def machine_id_is_a_directory(root: Path, outside: Path) -> None:
    (root / "etc/machine-id").mkdir()


def passwd_is_a_pipe(root: Path, outside: Path) -> None:
    (root / "etc/passwd").unlink()
    os.mkfifo(root / "etc/passwd")


def loops(root: Path, outside: Path) -> None:
    replace(root / "etc", "etc")


def data_is_a_link_out(root: Path, outside: Path) -> None:
    replace(root / "data", str(outside))


def etc_is_a_pipe(root: Path, outside: Path) -> None:
    shutil.rmtree(root / "etc")
    os.mkfifo(root / "etc")


def etc_is_a_link_to_dev(root: Path, outside: Path) -> None:
    replace(root / "etc", "/dev")


def passwd_is_huge(root: Path, outside: Path) -> None:
    os.truncate(root / "etc/passwd", 300 << 20)


def passwd_is_a_link_to_zeros(root: Path, outside: Path) -> None:
    replace(root / "etc/passwd", "/dev/zero")


def group_is_a_link_to_a_pipe(root: Path, outside: Path) -> None:
    os.mkfifo(root / "tmp/pipe")
    replace(root / "etc/group", "../tmp/pipe")


def hostname_is_a_directory(root: Path, outside: Path) -> None:
    (root / "etc/hostname").mkdir()


def data_is_a_file(root: Path, outside: Path) -> None:
    (root / "data").write_text("")


def data_is_a_link_to_proc(root: Path, outside: Path) -> None:
    replace(root / "data", "/proc/self")


STARTABLE = [
    etc_is_a_pipe, etc_is_a_link_to_dev, passwd_is_huge, passwd_is_a_link_to_zeros,
    group_is_a_link_to_a_pipe, hostname_is_a_directory, data_is_a_file, data_is_a_link_to_proc,
    passwd_is_a_pipe, machine_id_is_a_directory, loops, etc_is_a_link_out,
]  # fmt: skip


@pytest.mark.parametrize("prepare", STARTABLE)
async def test_no_file_of_a_sandbox_keeps_it_from_waking(bench: Bench, prepare: Prepare) -> None:
    """Otherwise its data would be out of reach; what was in the way is still there."""
    shared, outside = bench.home / "shared", bench.home / "outside"
    for directory in (shared, outside):
        directory.mkdir()
    spec = bench.spec(mounts=(Mount(source=shared, target="/data"),))
    prepare(spec.rootfs, outside)
    began = time.monotonic()
    box = await started(bench, spec)
    assert time.monotonic() - began < 3
    assert box is not None
    assert box.sh("echo $((6 * 7))") == "42\n"
    found = [*spec.rootfs.glob("*.atoll-unusable"), *spec.rootfs.glob("etc/*.atoll-unusable")]
    assert len(found) == 1


async def test_a_refusal_names_no_path_of_the_host(bench: Bench) -> None:
    spec = bench.spec(mounts=(Mount(source=bench.home / "missing", target="/data"),))
    with pytest.raises(ContainerUnavailableError) as caught:
        await bench.runtime.start(spec)
    assert str(bench.home) not in str(caught.value)
    assert "source of /data" in str(caught.value)


CASES = [
    machine_id_is_a_link_out, machine_id_climbs_out, etc_is_a_link_out, dev_is_a_link_out,
    sys_is_a_link_out, proc_is_a_link, proc_is_a_file, machine_id_is_a_directory,
    passwd_is_a_pipe, loops, data_is_a_link_out,
]  # fmt: skip


async def started(bench: Bench, spec: ContainerSpec) -> Box | None:
    try:
        return Box(bench.runtime, spec, await bench.runtime.start(spec))
    except ContainerUnavailableError as error:
        assert error.context["reason"] == "runtime"
        assert error.message
        return None


@pytest.mark.parametrize("prepare", CASES)
async def test_a_prepared_root_harms_nothing_but_itself(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, prepare: Prepare
) -> None:
    """It starts or says why not, in time; nothing outside is made, changed or mounted over."""
    monkeypatch.setattr(bench.runtime, "_timeout", 3.0)
    outside, shared = bench.home / "outside", bench.home / "shared"
    for directory in (outside, shared):
        directory.mkdir(mode=0o777)
        directory.chmod(0o777)
    (outside / "passwd").write_text("before")
    spec = bench.spec(mounts=(Mount(source=shared, target="/data"),))
    prepare(spec.rootfs, outside)
    os.chown(spec.rootfs, ID_BASE, ID_BASE)
    began = time.monotonic()
    box = await started(bench, spec)
    assert time.monotonic() - began < 10
    if box:
        assert box.call("hello")["pid"] == 1
        assert box.sh("echo $((6 * 7))") == "42\n"
    mounts = Path("/proc/mounts").read_text()
    await bench.runtime.remove(spec.host_ref)
    assert f"{outside}" not in mounts
    assert [path.name for path in outside.iterdir()] == ["passwd"]
    assert (outside / "passwd").read_text() == "before"
    assert await bench.runtime.list() == []
