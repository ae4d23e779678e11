from pathlib import Path, PurePosixPath

import pytest

from atoll.runtime.oci.cgroup_files import Limits
from atoll.runtime.oci.cgroup_v2 import CgroupV2

PATH = PurePosixPath("atoll/e1/box")
FILES = ("memory.max", "memory.swap.max", "cpu.max", "pids.max")


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """What the kernel shows once the groups are made."""
    user = tmp_path / PATH / "user"
    user.mkdir(parents=True)
    for name in FILES:
        (user / name).write_text("")
    for directory in (tmp_path, *(tmp_path / p for p in (PATH, *PATH.parents))):
        (directory / "cgroup.subtree_control").write_text("")
    return user


@pytest.fixture
def group(tmp_path: Path, user: Path) -> CgroupV2:
    return CgroupV2(tmp_path, PATH)


def test_limits_are_those_of_the_commands_alone(user: Path, group: CgroupV2) -> None:
    group.make(Limits(memory=1 << 30, cpu=2, pids=50))
    assert {name: (user / name).read_text() for name in FILES} == {
        "memory.max": "1073741824",
        "memory.swap.max": "0",
        "cpu.max": "200000 100000",
        "pids.max": "50",
    }


def test_every_ancestor_passes_its_controllers_on(tmp_path: Path, group: CgroupV2) -> None:
    """Without it the files of the limits do not exist below."""
    group.make(Limits(memory=1 << 30, cpu=2, pids=50))
    for directory in (tmp_path, tmp_path / "atoll", tmp_path / "atoll/e1", tmp_path / PATH):
        told = (directory / "cgroup.subtree_control").read_text()
        assert told == "+memory +pids +cpu"


def test_a_tiny_share_of_a_processor_is_the_least_the_kernel_takes() -> None:
    assert Limits(memory=1, cpu=0.001, pids=1).quota == 1_000


def test_a_kernel_without_swap_is_no_error(user: Path, group: CgroupV2) -> None:
    (user / "memory.swap.max").unlink()
    group.make(Limits(memory=1 << 30, cpu=2, pids=50))


def test_commands_enter_their_group_by_one_file(user: Path, group: CgroupV2) -> None:
    assert group.procs_files() == [user / "cgroup.procs"]
    assert group.memory_events_file() == user / "memory.events"
    assert group.pids_events_file() == user / "pids.events"


def test_both_siblings_are_listed(tmp_path: Path, user: Path, group: CgroupV2) -> None:
    (tmp_path / PATH / "agent").mkdir()
    (tmp_path / PATH / "cgroup.procs").write_text("")
    (tmp_path / PATH / "agent/cgroup.procs").write_text("5\n")
    (user / "cgroup.procs").write_text("7\n8\n")
    assert sorted(group.pids()) == [5, 7, 8]


def test_freezing_is_done_when_the_kernel_says_so(tmp_path: Path, group: CgroupV2) -> None:
    top = tmp_path / PATH
    (top / "cgroup.freeze").write_text("0")
    (top / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    group.set_frozen(True)
    assert (top / "cgroup.freeze").read_text() == "1"
    assert not group.is_frozen()
    (top / "cgroup.events").write_text("populated 1\nfrozen 1\n")
    assert group.is_frozen()


def test_usage_counts_working_memory_not_the_page_cache(
    tmp_path: Path, user: Path, group: CgroupV2
) -> None:
    (user / "memory.current").write_text("1000\n")
    (user / "memory.stat").write_text("anon 400\ninactive_file 600\n")
    (user / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    (tmp_path / PATH / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    (user / "pids.current").write_text("7\n")
    usage = group.usage()
    assert (usage.memory, usage.cpu_time, usage.pids, usage.oom_kills) == (400, 1.5, 7, 2)


def test_removing_the_last_takes_the_engines_group_too_and_may_be_repeated(tmp_path: Path) -> None:
    for name in ("agent", "user"):
        (tmp_path / PATH / name).mkdir(parents=True)
    group = CgroupV2(tmp_path, PATH)
    group.remove()
    group.remove()
    assert (tmp_path / "atoll/e1").parent.is_dir()
    assert not (tmp_path / "atoll/e1").exists()
    assert not (tmp_path / PATH).exists()
