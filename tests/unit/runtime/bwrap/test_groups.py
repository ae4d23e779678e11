import os
from pathlib import Path
from typing import Any

import pytest

from atoll.runtime.base import ContainerSpec
from atoll.runtime.bwrap import groups
from atoll.runtime.bwrap.groups import Groups, Part
from atoll.runtime.oci.bundle import AgentLimits

SCOPE = "user.slice/user-1000.slice/user@1000.service/app.slice/run-r1.scope"
AGENT = AgentLimits(memory=64 << 20, pids=99)
LIMITS = ("memory.max", "memory.swap.max", "cpu.max", "pids.max")


def spec(host_ref: str) -> ContainerSpec:
    given: dict[str, Any] = {
        "host_ref": host_ref, "generation": 1, "identity": "i", "hostname": "h", "rootfs": Path("/r"),
        "run_dir": Path("/d"), "netns": None, "id_base": 0, "id_count": 1, "memory": 1 << 28,
        "cpu": 0.5, "pids": 50,
    }  # fmt: skip
    return ContainerSpec(**given)


def lay(folder: Path, *names: str, **texts: str) -> None:
    """Make what the kernel shows of a group."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("cgroup.procs", "cgroup.subtree_control", *names):
        (folder / name).write_text("")
    for name, text in texts.items():
        (folder / f"cgroup.{name}").write_text(text)


@pytest.fixture
def scope(tmp_path: Path) -> Path:
    """A user's, as systemd gives it with Delegate=yes."""
    scope = tmp_path / SCOPE
    lay(scope, controllers="cpu memory pids\n")
    os.setxattr(scope, groups.MARK, b"1")
    return scope


@pytest.fixture
def part(scope: Path, tmp_path: Path) -> Part:
    found = groups.own(f"0::/{SCOPE}\n", tmp_path)
    assert found
    return found


def test_a_group_is_ours_where_systemd_says_so(tmp_path: Path, scope: Path) -> None:
    assert groups.own(f"0::/{SCOPE}\n", tmp_path) == Part(scope, ("memory", "pids", "cpu"))
    os.setxattr(scope, groups.MARK, b"0")
    assert groups.own(f"0::/{SCOPE}\n", tmp_path) is None
    os.removexattr(scope, groups.MARK)
    assert groups.own(f"0::/{SCOPE}\n", tmp_path) is None


def test_an_engine_that_is_in_the_place_of_engines_has_the_part_above(
    tmp_path: Path, scope: Path
) -> None:
    lay(scope / groups.ENGINE)
    found = groups.own(f"0::/{SCOPE}/{groups.ENGINE}\n", tmp_path)
    assert found == Part(scope, ("memory", "pids", "cpu"))
    lay(scope / "another")
    assert groups.own(f"0::/{SCOPE}/another\n", tmp_path) is None


def test_other_layouts_give_nothing(tmp_path: Path) -> None:
    for told in ("", "5:memory:/a\n1:name=systemd:/b\n", "0::/../../x\n", "0::/not/here\n", "x"):
        assert groups.own(told, tmp_path) is None


def test_only_controllers_that_were_given_count(tmp_path: Path, scope: Path) -> None:
    (scope / "cgroup.controllers").write_text("hugetlb pids\n")
    assert groups.own(f"0::/{SCOPE}\n", tmp_path) == Part(scope, ("pids",))


def test_what_is_in_the_part_makes_room_before_controllers_are_passed_on(part: Part) -> None:
    """The kernel refuses them to a group with processes."""
    lay(part.top / groups.ENGINE)
    (part.top / "cgroup.procs").write_text("41\n42\n")
    assert Groups.take(part, AGENT)
    assert (part.top / groups.ENGINE / "cgroup.procs").read_text() == "42"
    assert (part.top / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"


def test_a_part_that_cannot_be_divided_is_left_alone(part: Part, tmp_path: Path) -> None:
    (part.top / "cgroup.subtree_control").unlink()
    lay(part.top / groups.ENGINE)
    assert Groups.take(part, AGENT) is None
    assert Groups.take(None, AGENT) is None


def test_a_sandbox_gets_its_limits_and_its_agent_others(part: Part) -> None:
    found = Groups(part, AGENT)
    group = found.path("box")
    for folder in (part.top / "sandboxes", group):
        lay(folder)
    lay(group / "user", *LIMITS, controllers="cpu memory pids\n")
    lay(group / "agent", *LIMITS)
    assert found.make(spec("box")) == group
    told = {name: (group / "user" / name).read_text() for name in LIMITS}
    assert list(told.values()) == [str(1 << 28), "0", "50000 100000", "50"]
    assert (group / "agent/memory.max").read_text() == str(64 << 20)
    assert (group / "agent/pids.max").read_text() == "99"
    assert (group / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    assert set(groups.held(group)) == {"memory", "pids", "cpu"}


def test_limits_of_controllers_that_are_not_there_are_not_set(part: Part) -> None:
    found = Groups(Part(part.top, ("pids",)), AGENT)
    group = found.path("box")
    for folder in (part.top / "sandboxes", group):
        lay(folder)
    lay(group / "user", "pids.max", controllers="pids\n")
    lay(group / "agent", "pids.max")
    found.make(spec("box"))
    assert (group / "user/pids.max").read_text() == "50"
    assert groups.held(group) == ("pids",)


def test_what_is_not_there_is_removed_and_held_to_nothing(tmp_path: Path) -> None:
    groups.remove(tmp_path / "sandboxes/box")
    assert groups.held(tmp_path / "sandboxes/box") == groups.held("") == ()


def test_a_removed_sandbox_leaves_no_group(part: Part) -> None:
    group = part.top / "sandboxes/box"
    for name in ("agent", "user"):
        (group / name).mkdir(parents=True)
    groups.remove(group)
    assert not group.exists()


def test_what_no_kernel_holds_a_sandbox_to_is_told() -> None:
    assert groups.unlimited(()) == groups.unlimited(("memory", "pids")) == ("cpu", "disk")
    assert groups.unlimited(("memory", "pids", "cpu")) == ("disk",)
