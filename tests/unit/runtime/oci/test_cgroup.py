from pathlib import Path, PurePosixPath

import pytest

from atoll.errors import ContainerUnavailableError, TimeoutError
from atoll.runtime.base import Usage
from atoll.runtime.oci import cgroup
from atoll.runtime.oci.cgroup_files import Limits

V1 = """\
29 22 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
30 29 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
31 29 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
32 29 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
"""
UNIFIED = "33 29 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n"
V2 = "29 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,memory_recursiveprot\n"


def test_controllers_that_share_a_mount_are_both_found() -> None:
    found = cgroup.hierarchies(V1, lambda path: "")
    assert found.v1["cpu"] == found.v1["cpuacct"] == Path("/sys/fs/cgroup/cpu,cpuacct")
    assert set(found.v1) == {"cpu", "cpuacct", "memory", "name=systemd"}
    assert (found.mode, found.unified) == ("v1", False)


def test_v1_with_an_empty_unified_mount_is_v1() -> None:
    assert cgroup.hierarchies(V1 + UNIFIED, lambda path: "\n").mode == "v1"


def test_controllers_on_both_sides_are_hybrid() -> None:
    found = cgroup.hierarchies(V1 + UNIFIED, lambda path: "hugetlb\n")
    assert (found.mode, found.unified) == ("hybrid", False)


def test_v2_is_where_memory_is_limited() -> None:
    found = cgroup.hierarchies(V2, lambda path: "cpu io memory pids\n")
    assert (found.mode, found.v2) == ("v2", Path("/sys/fs/cgroup"))


def test_a_bind_of_a_part_of_a_hierarchy_is_not_the_hierarchy() -> None:
    bind = "40 29 0:28 /docker/x /mnt/memory rw - cgroup cgroup rw,memory\n"
    assert cgroup.hierarchies(bind + V1, lambda path: "").v1["memory"] == Path(
        "/sys/fs/cgroup/memory"
    )


def test_each_container_has_its_own_place_below_its_engines() -> None:
    assert cgroup.path_of("e1", "e1-abc") == PurePosixPath("/atoll/e1/e1-abc")


def test_the_version_in_force_decides_the_driver() -> None:
    v2 = cgroup.hierarchies(V2, lambda path: "memory")
    v1 = cgroup.hierarchies(V1, lambda path: "")
    assert type(cgroup.of(v2, "e", "r")).__name__ == "CgroupV2"
    assert type(cgroup.of(v1, "e", "r")).__name__ == "CgroupV1"


class Stubborn:
    """A sandbox whose processes neither freeze nor die."""

    def __init__(self, frozen_after: int = 10**9) -> None:
        self.asked: list[bool] = []
        self.looks = 0
        self.frozen_after = frozen_after

    def make(self, limits: Limits) -> None: ...
    def procs_files(self) -> list[Path]:
        return []

    def join_files(self) -> list[Path]:
        return []

    def pids_events_file(self) -> Path:
        return Path()

    def memory_events_file(self) -> Path:
        return Path()

    def pids(self) -> list[int]:
        return [2**22 - 1]

    def holds(self, pid: int) -> bool:
        return False

    def set_frozen(self, frozen: bool) -> None:
        self.asked.append(frozen)

    def is_frozen(self) -> bool:
        self.looks += 1
        return self.looks > self.frozen_after

    def usage(self) -> Usage:
        return Usage(memory=0, cpu_time=0, pids=0, oom_kills=0)

    def remove(self) -> None: ...


def test_a_freeze_that_cannot_be_had_in_time_is_undone() -> None:
    """Half frozen is the worst state: nothing answers and nothing says why."""
    group = Stubborn()
    with pytest.raises(TimeoutError):
        cgroup.freeze(group, timeout=0.01)
    assert (group.asked[0], group.asked[-1]) == (True, False)


def test_a_freeze_waits_until_all_are_frozen() -> None:
    group = Stubborn(frozen_after=3)
    cgroup.freeze(group, timeout=5)
    assert (group.asked, group.looks) == ([True] * 4, 4)


def test_processes_that_hold_each_other_up_are_let_run_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cgroup, "_FREEZE_ROUND", 0.002)
    group = Stubborn(frozen_after=10)
    cgroup.freeze(group, timeout=5)
    assert False in group.asked
    assert group.asked[-1] is True


def test_processes_that_do_not_die_are_reported_and_thawed() -> None:
    """A frozen process takes SIGKILL only once it runs."""
    group = Stubborn()
    with pytest.raises(ContainerUnavailableError, match="did not end"):
        cgroup.kill(group, timeout=0.01)
    assert set(group.asked) == {False}
