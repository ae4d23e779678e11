from pathlib import Path

from atoll.engine.capacity.node import (
    START_MEMORY,
    START_PIDS,
    Free,
    Shortage,
    measured,
    reserve,
    shortage,
    total_memory,
    watched,
)
from atoll.settings import LifecycleSettings, RuntimeSettings, Settings, StorageSettings

KEPT = Free(memory=1_000, pids=100, disk=50)
ENOUGH = Free(memory=1_000 + START_MEMORY, pids=100 + START_PIDS, disk=50)


def test_what_is_just_enough_is_enough_and_one_less_is_not() -> None:
    assert shortage(ENOUGH, KEPT, 1, new=True) is None
    for number, name in enumerate(Free._fields):
        less = ENOUGH._replace(**{name: ENOUGH[number] - 1})
        assert shortage(less, KEPT, 1, new=True) == Shortage(name, less[number], ENOUGH[number])
    assert shortage(ENOUGH, KEPT, 2, new=True)


def test_a_full_disk_keeps_nobody_from_waking() -> None:
    assert shortage(ENOUGH._replace(disk=0), KEPT, 1, new=False) is None


def test_the_kernel_is_read(tmp_path: Path) -> None:
    (tmp_path / "sys/kernel").mkdir(parents=True)
    (tmp_path / "sys/kernel/pid_max").write_text("32768\n")
    (tmp_path / "sys/kernel/threads-max").write_text("1000\n")
    (tmp_path / "loadavg").write_text("1.04 0.83 1.21 2/110 22852\n")
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   7 kB\nHugePages_Total: 0\n")
    found = measured(tmp_path, tmp_path)
    assert (found.memory, found.pids) == (7 * 1024, 890)
    assert found.disk > 0
    assert total_memory(tmp_path) == 9 * 1024


def test_this_host_is_read() -> None:
    assert all(value > 0 for value in measured(Path("/")))


def test_reserves_are_settings() -> None:
    settings = Settings(
        lifecycle=LifecycleSettings(reserve_memory_mib=1, reserve_pids=2),
        storage=StorageSettings(reserve_mb=3),
    )
    assert reserve(settings, 1 << 40) == Free(1 << 20, 2, 3_000_000)


def test_a_small_node_keeps_a_part_of_its_memory_for_sandboxes() -> None:
    assert reserve(Settings(), 1 << 30).memory == 1 << 26


def test_sandboxes_on_other_hosts_are_not_refused_for_what_this_one_lacks() -> None:
    settings = Settings(runtime=RuntimeSettings(default="kubernetes"))
    kept, free = watched(settings)
    assert shortage(free(), kept, 1_000, new=True) is None


def test_this_host_is_watched_for_sandboxes_that_run_here() -> None:
    kept, free = watched(Settings(storage=StorageSettings(state_dir=Path("/"))))
    assert kept == reserve(Settings(), total_memory())
    assert 0 < free().memory <= total_memory()
