from pathlib import Path

import pytest

from atoll.runtime.base import ContainerSpec, Mount
from atoll.runtime.bwrap import command
from atoll.runtime.oci import bundle

HOST = command.Host(
    program=Path("/opt/bwrap"),
    agent_dir=Path("/cache/agent"),
    loader="ld.so",
    nofile=1024,
    masked=("/proc/keys", "/proc/acpi/"),
    read_only=("/proc/sys",),
)


def spec(*mounts: Mount) -> ContainerSpec:
    return ContainerSpec(
        host_ref="e-1", generation=1, identity="layer", hostname="box", rootfs=Path("/run/rootfs"),
        run_dir=Path("/run/container"), netns=None, id_base=0, id_count=1, memory=1 << 20, cpu=1,
        pids=10, mounts=mounts,
    )  # fmt: skip


def pairs(argv: list[str], option: str) -> list[tuple[str, ...]]:
    return [tuple(argv[at + 1 : at + 3]) for at, part in enumerate(argv) if part == option]


def test_it_has_every_namespace_but_the_user_s_which_the_launcher_made() -> None:
    argv = command.argv(spec(), HOST)
    kinds = {part.removeprefix("--unshare-") for part in argv if part.startswith("--unshare-")}
    assert kinds == {"pid", "net", "ipc", "uts", "cgroup"}


def test_the_sandbox_does_not_end_with_the_engine() -> None:
    assert "--die-with-parent" not in command.argv(spec(), HOST)


def test_capabilities_are_those_of_level_container() -> None:
    argv = command.argv(spec(), HOST)
    assert argv[argv.index("--cap-drop") + 1] == "ALL"
    added = {argv[at + 1] for at, part in enumerate(argv) if part == "--cap-add"}
    assert added == {*bundle.COMMAND_CAPABILITIES, *bundle.AGENT_CAPABILITIES}


def test_no_variable_of_the_host_gets_in() -> None:
    argv = command.argv(spec(), HOST)
    assert argv.index("--clearenv") < argv.index("--setenv")
    assert pairs(argv, "--setenv") == [("HOME", "/")]


def test_system_paths_are_masked_or_read_only() -> None:
    argv = command.argv(spec(), HOST)
    assert ("/proc/sys", "/proc/sys") in pairs(argv, "--ro-bind")
    assert ("/dev/null", "/proc/keys") in pairs(argv, "--dev-bind")
    remounted = {first for first, *_ in pairs(argv, "--remount-ro")}
    assert remounted == {"/proc/acpi", "/dev", "/sys"}


def test_everything_is_mounted_before_what_the_caller_gives() -> None:
    """A given mount may lie over the image's files, never under the system's."""
    argv = command.argv(spec(Mount(source=Path("/s"), target="/data")), HOST)
    assert argv.index("/data") > argv.index("/sys")


@pytest.mark.parametrize(("read_only", "verb"), [(True, "--ro-bind"), (False, "--bind")])
def test_mounts_are_read_only_unless_they_say_otherwise(read_only: bool, verb: str) -> None:
    argv = command.argv(spec(Mount(source=Path("/s"), target="/d", read_only=read_only)), HOST)
    assert ("/s", "/d") in pairs(argv, verb)


def test_targets_are_the_places_that_have_to_be_clear(tmp_path: Path) -> None:
    given = spec(
        Mount(source=tmp_path, target="/data"),
        Mount(source=Path("/etc/hosts"), target="/etc/hosts"),
    )
    assert command.targets(given) == {
        "/etc/machine-id": False,
        "/etc/hostname": False,
        "/data": True,
        "/etc/hosts": False,
    }


def test_only_paths_of_this_kernel_are_masked(tmp_path: Path) -> None:
    """Bubblewrap cannot make a mount point in /proc."""
    (tmp_path / "acpi").mkdir()
    (tmp_path / "keys").touch()
    (tmp_path / "sys").mkdir()
    assert command.present(tmp_path) == (("/proc/acpi/", "/proc/keys"), ("/proc/sys",))
