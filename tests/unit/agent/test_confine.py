import errno
import platform
import struct

import pytest

import syscalls
from atoll.agent import confine
from atoll.agent.confine import AARCH64, X86_64, Arch
from atoll.runtime.oci.bundle import AGENT_CAPABILITIES, COMMAND_CAPABILITIES

ALLOW = 0x7FFF0000
KILL = 0x80000000
EPERM = 0x00050000 | errno.EPERM
ENOSYS = 0x00050000 | errno.ENOSYS

OF_PROCESSES = (
    "prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler",
)  # fmt: skip

both = pytest.mark.parametrize("arch", [X86_64, AARCH64], ids=["x86_64", "aarch64"])


def answer(arch: Arch, name: str, *arguments: int) -> int:
    program = confine.seccomp_program(arch)
    return syscalls.answer(program, arch.audit, arch.calls[name], *arguments)


@both
@pytest.mark.parametrize(
    "name", ["unshare", "setns", "mount", "umount2", "pivot_root", "move_mount", "bpf", "keyctl"]
)
def test_what_makes_namespaces_and_mounts_is_refused(arch: Arch, name: str) -> None:
    assert answer(arch, name) == EPERM


@both
def test_every_named_call_is_refused_in_some_form(arch: Arch) -> None:
    free = {name for name in arch.calls if answer(arch, name) == ALLOW}
    assert free == {"clone", "ioctl", "socket", *OF_PROCESSES, "setpriority", "ioprio_set"}


@both
def test_clone_is_refused_with_any_namespace_flag_and_only_then(arch: Arch) -> None:
    fork, thread = 17, 0x3D0F00
    assert answer(arch, "clone", fork) == answer(arch, "clone", thread) == ALLOW
    for bit in (0x80, 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert answer(arch, "clone", fork | bit) == EPERM


@both
def test_clone3_does_not_exist(arch: Arch) -> None:
    """Its flags lie in memory; libraries fall back to clone on ENOSYS, not on EPERM."""
    assert answer(arch, "clone3") == ENOSYS


@both
def test_typing_into_a_terminal_is_refused(arch: Arch) -> None:
    """Probe 20; high bits of the 64-bit argument do not hide it, the kernel looks at 32."""
    for request in (0x5412, 0x541C, 0xFFFFFFFF_00005412):
        assert answer(arch, "ioctl", 0, request) == EPERM
    assert answer(arch, "ioctl", 0, 0x5413) == ALLOW


@both
def test_no_request_of_btrfs_passes_but_cloning(arch: Arch) -> None:
    """A subvolume in a volume is outside of its limit, and nobody needs a capability to make one."""
    enotty = 0x00050000 | errno.ENOTTY
    create, create_v2, snapshot, info = 0x5000940E, 0x50009418, 0x50009417, 0x81F8943C
    for request in (create, create_v2, snapshot, info, 0xFFFFFFFF_5000940E):
        assert answer(arch, "ioctl", 3, request) == enotty
    for cloning in (0x40049409, 0x4020940D, 0xC0189436):
        assert answer(arch, "ioctl", 3, cloning) == ALLOW
    for other in (0x5413, 0x80086601, 0x94, 0x95_00):
        assert answer(arch, "ioctl", 3, other) == ALLOW


@both
def test_raw_and_kernel_sockets_are_refused(arch: Arch) -> None:
    assert [answer(arch, "socket", family) for family in (17, 38, 40)] == [EPERM] * 3
    assert [answer(arch, "socket", family) for family in (1, 2, 10, 16)] == [ALLOW] * 4


@both
def test_limits_and_schedule_of_pid_1_are_refused_and_no_other(arch: Arch) -> None:
    """It has the user id of root inside, which is all that the kernel asks for."""
    for name in OF_PROCESSES:
        assert answer(arch, name, 1) == answer(arch, name, 0xFFFFFFFF_00000001) == EPERM
        assert answer(arch, name, 0, 1) == answer(arch, name, 7, 1) == ALLOW
    for name, process, group, user in (("setpriority", 0, 1, 2), ("ioprio_set", 1, 2, 3)):
        assert answer(arch, name, process, 1) == answer(arch, name, group, 1) == EPERM
        assert answer(arch, name, user, 0) == EPERM
        assert answer(arch, name, process, 0, 1) == answer(arch, name, group, 9) == ALLOW


@both
def test_a_foreign_architecture_is_killed(arch: Arch) -> None:
    assert syscalls.answer(confine.seccomp_program(arch), 0x40000003, 1) == KILL


def test_x32_calls_are_refused() -> None:
    program = confine.seccomp_program(X86_64)
    assert syscalls.answer(program, X86_64.audit, 0x40000000 | 39) == EPERM
    assert syscalls.answer(program, X86_64.audit, 39) == ALLOW


@both
def test_jumps_stay_inside_the_program(arch: Arch) -> None:
    program = confine.seccomp_program(arch)
    steps = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    for at, (code, if_true, if_false, _) in enumerate(steps):
        if code & 7 == 5:
            assert at + 1 + max(if_true, if_false) < len(steps)


def test_this_machine_has_a_program() -> None:
    assert platform.machine() in confine.ARCHITECTURES


def test_commands_keep_what_the_runtime_gives_them_and_the_agent_has_more() -> None:
    """One capability more is what keeps root inside from tracing the agent."""
    assert {f"CAP_{name}" for name in confine.CAPABILITIES} == set(COMMAND_CAPABILITIES)
    assert not confine.command_capabilities(1 << 19 | 1 << 21)
    assert set(AGENT_CAPABILITIES).isdisjoint(COMMAND_CAPABILITIES)


def test_everything_a_command_does_not_keep_is_dropped() -> None:
    permitted = (1 << 41) - 1
    kept = confine.command_capabilities(permitted)
    assert set(confine.dropped(permitted)) == {n for n in range(64) if not kept >> n & 1}
    assert confine.dropped(1 << 7)[:8] == [0, 1, 2, 3, 4, 5, 6, 8]
