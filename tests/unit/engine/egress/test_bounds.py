from pathlib import Path

import pytest
from structlog.testing import capture_logs

from atoll.engine.egress.bounds import Bounds
from atoll.runtime.oci import cgroup
from atoll.runtime.oci.cgroup import Hierarchies

MEMORY = 64 << 20


def tree(top: Path, *files: str) -> Path:
    """Make what the kernel shows of a group whose limits can be set."""
    user = top / "atoll" / "e1" / "egress" / "user"
    user.mkdir(parents=True)
    for name in files:
        (user / name).write_text("")
    for folder in (user, *user.parents):
        if folder.is_relative_to(top):
            (folder / "cgroup.subtree_control").write_text("")
    return user


def test_the_gateway_has_a_group_of_its_own_on_v2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = tree(tmp_path, "memory.max", "memory.swap.max", "cpu.max", "pids.max")
    found = Hierarchies({}, tmp_path, frozenset({"memory", "pids", "cpu"}))
    monkeypatch.setattr(cgroup, "mounted", lambda: found)
    Bounds("e1", MEMORY).hold(4711)
    assert (user / "memory.max").read_text() == str(MEMORY)
    assert (user / "memory.swap.max").read_text() == "0"
    assert (user / "cgroup.procs").read_text() == "4711"


def test_the_gateway_has_a_group_of_its_own_on_v1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    controllers = ("memory", "pids", "cpu", "freezer")
    files = ("memory.limit_in_bytes", "cpu.cfs_period_us", "cpu.cfs_quota_us", "pids.max")
    users = {name: tree(tmp_path / name, *files) for name in controllers}
    found = Hierarchies({name: tmp_path / name for name in controllers}, None)
    monkeypatch.setattr(cgroup, "mounted", lambda: found)
    Bounds("e1", MEMORY).hold(4711)
    assert (users["memory"] / "memory.limit_in_bytes").read_text() == str(MEMORY)
    for name in ("memory", "pids", "cpu"):
        assert (users[name] / "cgroup.procs").read_text() == "4711"
    assert (users["freezer"].parent / "cgroup.procs").read_text() == "4711"


def test_a_host_without_groups_has_a_gateway_and_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Hierarchies({}, tmp_path / "none", frozenset({"memory"}))
    monkeypatch.setattr(cgroup, "mounted", lambda: found)
    with capture_logs() as logs:
        Bounds("e1", MEMORY).hold(4711)
        Bounds("e1", MEMORY).remove()
    assert [entry["event"] for entry in logs] == ["the egress gateway has no bounds"]
