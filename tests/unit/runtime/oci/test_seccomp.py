import errno
from typing import Any

import pytest

from atoll.agent import confine
from atoll.runtime.oci import bundle, seccomp

DOCKER_DENIES = """
    acct add_key bpf clock_settime delete_module finit_module fsconfig fsmount fsopen fspick
    init_module ioperm iopl kcmp kexec_file_load kexec_load keyctl lookup_dcookie mbind mount
    mount_setattr move_mount move_pages open_by_handle_at open_tree perf_event_open pivot_root
    quotactl reboot request_key set_mempolicy setdomainname sethostname setns settimeofday swapoff
    swapon syslog umount2 userfaultfd vhangup nfsservctl uselib ustat _sysctl create_module
    get_kernel_syms query_module sysfs vm86 vm86old modify_ldt io_uring_setup io_uring_enter
    io_uring_register
""".split()  # noqa: SIM905

EQUAL, ANY = "SCMP_CMP_MASKED_EQ", "SCMP_CMP_GE"


def answer(call: str, *args: int) -> int | None:
    """Evaluate the profile as the kernel would: None is allowed, else the errno."""
    profile = seccomp.profile("x86_64")
    for operator in (EQUAL, ANY):
        for rule in profile["syscalls"]:
            if call in rule["names"] and _matches(rule.get("args", []), args, operator):
                return None if rule["action"] == "SCMP_ACT_ALLOW" else int(rule["errnoRet"])
    return int(profile["defaultErrnoRet"])


def _matches(conditions: list[dict[str, Any]], args: tuple[int, ...], operator: str) -> bool:
    if not conditions:
        return operator == ANY
    if conditions[0]["op"] != operator:
        return False
    return all(
        operator == ANY or args[c["index"]] & c["value"] == c["valueTwo"] for c in conditions
    )


@pytest.mark.parametrize("call", DOCKER_DENIES)
def test_whatever_containers_are_usually_denied_is_denied(call: str) -> None:
    """The list is the bar that security.md sets; a call may be unknown (ENOSYS) or refused."""
    assert answer(call, *[0] * 6) in (errno.EPERM, errno.ENOSYS)


@pytest.mark.parametrize("call", seccomp.AGENT_ONLY)
def test_what_only_the_agent_needs_is_let_through_with_its_flags_and_no_more(call: str) -> None:
    """Beside the second filter, commands lack the capability that these calls take."""
    index, allowed = seccomp.AGENT_ONLY[call]
    user = 0x1000_0000  # CLONE_NEWUSER, and for mount a flag that is not ours
    for value in (*allowed, *(one | user for one in allowed), user):
        args = [0] * 6
        args[index] = value
        assert answer(call, *args) == (None if value in allowed else errno.EPERM)
    assert "CAP_SYS_ADMIN" not in bundle.COMMAND_CAPABILITIES


def test_no_call_is_in_two_lists() -> None:
    conditional = {"clone", "unshare", "personality", "ioctl", "socket", "socketpair", "clone3"}
    conditional |= {"prlimit64", "setsockopt", *seccomp.HUGE_PAGES, *seccomp.AGENT_ONLY}
    assert not seccomp.ALLOWED & seccomp.REFUSED
    assert not (seccomp.ALLOWED | seccomp.REFUSED) & conditional


@pytest.mark.parametrize("flag", [1 << n for n in (17, 25, 26, 27, 28, 29, 30)])
@pytest.mark.parametrize("call", ["clone", "unshare"])
def test_no_namespace_can_be_made(call: str, flag: int) -> None:
    assert answer(call, flag | 17) == errno.EPERM


def test_threads_and_forks_are_let_through() -> None:
    pthread_create = 0x3D0F00
    assert answer("clone", pthread_create) is None
    assert answer("clone", 0x1200011) is None


def test_clone3_is_unknown_so_that_libraries_fall_back_to_clone() -> None:
    assert answer("clone3") == errno.ENOSYS


@pytest.mark.parametrize("upper", [0, 1 << 32, 0xFFFF_FFFF << 32])
@pytest.mark.parametrize("number", [seccomp.TIOCSTI, seccomp.TIOCLINUX])
def test_terminals_cannot_be_typed_into_whatever_the_upper_half_says(
    number: int, upper: int
) -> None:
    """The kernel drops the upper half of the argument: a comparison of 64 bits is no defence."""
    assert answer("ioctl", 0, upper | number) == errno.EPERM
    assert answer("ioctl", 0, upper | 0x5413) is None


@pytest.mark.parametrize("family", [1, 2, 10])
def test_ordinary_sockets_are_let_through(family: int) -> None:
    assert answer("socket", family, 1, 0) is None


@pytest.mark.parametrize("family", [0, 3, 17, 21, 31, 38, 40, 44, 1 << 31])
def test_every_other_address_family_does_not_exist(family: int) -> None:
    assert answer("socket", family, 1, 0) == errno.EAFNOSUPPORT


@pytest.mark.parametrize(("protocol", "allowed"), [(0, True), (4, True), (9, False), (12, False)])
def test_netlink_is_for_looking_at_interfaces_and_sockets(protocol: int, allowed: bool) -> None:
    assert (answer("socket", 16, 3, protocol) is None) is allowed


def test_limits_can_be_set_of_oneself_only() -> None:
    """The kernel lets root inside change those of pid 1, down to when it is killed."""
    assert answer("prlimit64", 0, 7, 0, 0) is None
    assert answer("prlimit64", 1, 7, 0, 0) == errno.EPERM


def test_an_unknown_machine_has_no_profile() -> None:
    with pytest.raises(KeyError):
        seccomp.profile("riscv64")


def test_only_the_machines_own_calling_convention_is_let_in() -> None:
    assert seccomp.profile("aarch64")["architectures"] == ["SCMP_ARCH_AARCH64"]


def test_the_filter_of_commands_refuses_nothing_that_only_it_refuses() -> None:
    """So that a way round the second filter is worth nothing: the first holds by itself."""
    own = {"ioctl", "socket", "clone", "clone3"}
    own |= set(seccomp.AGENT_ONLY)  # but for the flags that isolated sessions take
    own |= {"prlimit64", "setpriority", "ioprio_set"}  # of pid 1: the agent itself sets its own
    own |= {name for name in confine.X86_64.calls if name.startswith("sched_set")}
    assert set(confine.X86_64.calls) - own <= seccomp.REFUSED


@pytest.mark.parametrize(
    "call", ["io_setup", "io_submit", "io_getevents", "io_pgetevents", "io_cancel", "io_destroy"]
)
def test_asynchronous_io_of_the_kernel_does_not_exist(call: str) -> None:
    """Its contexts are counted once for the whole host."""
    assert answer(call) == errno.ENOSYS


@pytest.mark.parametrize("call", seccomp.HUGE_PAGES)
def test_huge_pages_of_the_host_are_not_given(call: str) -> None:
    index, flag = seccomp.HUGE_PAGES[call]
    flags = [0] * 4
    assert answer(call, *flags) is None
    flags[index] = flag | 1
    assert answer(call, *flags) == errno.ENOMEM


@pytest.mark.parametrize("option", [26, 51, 26 | 1 << 32])
def test_no_filter_is_attached_to_a_socket(option: int) -> None:
    assert answer("setsockopt", 3, 1, option) == errno.ENOPROTOOPT
    assert answer("setsockopt", 3, 6, option) is None
    assert answer("setsockopt", 3, 1, 2) is None
