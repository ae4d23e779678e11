from pathlib import Path, PurePosixPath

import pytest

from atoll.runtime.oci.cgroup_files import Limits
from atoll.runtime.oci.cgroup_v1 import CgroupV1

PATH = PurePosixPath("atoll/e1/box")
LIMITS = Limits(memory=256 << 20, cpu=0.5, pids=100)
FILES = {
    "memory": [
        "memory.limit_in_bytes",
        "memory.memsw.limit_in_bytes",
        "memory.oom_control",
        "memory.kmem.tcp.limit_in_bytes",
    ],
    "cpu": ["cpu.cfs_period_us", "cpu.cfs_quota_us"],
    "pids": ["pids.max"],
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What the kernel shows once the groups are made."""
    for controller, names in FILES.items():
        user = tmp_path / controller / PATH / "user"
        user.mkdir(parents=True)
        for name in names:
            (user / name).write_text("")
    (tmp_path / "freezer" / PATH / "agent").mkdir(parents=True)
    (tmp_path / "cpuacct" / PATH).mkdir(parents=True)
    return tmp_path


@pytest.fixture
def group(tree: Path) -> CgroupV1:
    return CgroupV1({path.name: path for path in tree.iterdir()}, PATH)


def test_limits_are_those_of_the_commands_alone(tree: Path, group: CgroupV1) -> None:
    group.make(LIMITS)
    told = {name: (tree / c / PATH / "user" / name).read_text() for c in FILES for name in FILES[c]}
    assert told == {
        "memory.limit_in_bytes": "268435456",
        "memory.memsw.limit_in_bytes": "268435456",  # memory and swap together: no swap
        "memory.oom_control": "",
        "memory.kmem.tcp.limit_in_bytes": "67108864",  # of all sockets
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "50000",
        "pids.max": "100",
    }


def test_a_kernel_that_does_not_count_swap_or_sockets_is_no_error(
    tree: Path, group: CgroupV1
) -> None:
    for name in ("memory.memsw.limit_in_bytes", "memory.kmem.tcp.limit_in_bytes"):
        (tree / "memory" / PATH / "user" / name).unlink()
    group.make(LIMITS)


def test_a_missing_limit_is_an_error_never_silence(tree: Path, group: CgroupV1) -> None:
    (tree / "pids" / PATH / "user/pids.max").unlink()
    with pytest.raises(FileNotFoundError):
        group.make(LIMITS)


def test_commands_enter_one_group_for_each_limit(tree: Path, group: CgroupV1) -> None:
    files = [path.relative_to(tree) for path in group.procs_files()]
    assert files == [Path(c, PATH, "user/tasks") for c in ("memory", "pids", "cpu")]


def test_the_freezer_lists_every_process(tree: Path, group: CgroupV1) -> None:
    (tree / "freezer" / PATH / "cgroup.procs").write_text("")
    (tree / "freezer" / PATH / "agent/cgroup.procs").write_text("10\n11\n")
    assert sorted(group.pids()) == [10, 11]


def test_freezing_acts_on_agent_and_commands_together(tree: Path, group: CgroupV1) -> None:
    state = tree / "freezer" / PATH / "freezer.state"
    state.write_text("THAWED")
    group.set_frozen(True)
    assert (state.read_text(), group.is_frozen()) == ("FROZEN", True)
    state.write_text("FREEZING\n")
    assert not group.is_frozen()


def test_freezing_what_is_gone_does_nothing(group: CgroupV1) -> None:
    group.set_frozen(False)


def test_usage_counts_working_memory_not_the_page_cache(tree: Path, group: CgroupV1) -> None:
    memory = tree / "memory" / PATH / "user"
    (memory / "memory.usage_in_bytes").write_text("1000\n")
    (memory / "memory.stat").write_text("cache 700\ntotal_inactive_file 600\n")
    (memory / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    (tree / "cpuacct" / PATH / "cpuacct.usage").write_text("1500000000\n")
    (tree / "pids" / PATH / "user/pids.current").write_text("7\n")
    usage = group.usage()
    assert (usage.memory, usage.cpu_time, usage.pids, usage.oom_kills) == (400, 1.5, 7, 2)


def test_usage_of_what_is_gone_is_zero(tmp_path: Path) -> None:
    gone = CgroupV1({name: tmp_path / name for name in ("memory", "pids", "cpuacct")}, PATH)
    assert gone.usage().memory == gone.usage().pids == 0


def test_removing_the_last_takes_the_engines_group_too_and_may_be_repeated(tmp_path: Path) -> None:
    for name in ("memory", "freezer"):
        (tmp_path / name / PATH / "user").mkdir(parents=True)
    group = CgroupV1({name: tmp_path / name for name in ("memory", "freezer", "pids")}, PATH)
    group.remove()
    group.remove()
    assert list(tmp_path.rglob("box")) == []
    assert (tmp_path / "memory/atoll/e1").parent.is_dir()
    assert not (tmp_path / "memory/atoll/e1").exists()
