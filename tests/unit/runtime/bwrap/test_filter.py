"""The program is run as the kernel runs it, and compared with what the profile says."""

import errno
import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.runtime.bwrap import filter
from atoll.runtime.bwrap.calls import MACHINES
from atoll.runtime.oci import seccomp
from syscalls import answer

ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
EQUAL, AT_LEAST, RETURN = 0x15, 0x35, 0x06


def wanted(machine: str, name: str, arguments: tuple[int, ...]) -> int:
    """What the profile answers, looked up rule by rule."""
    profile = seccomp.profile(machine)
    rules = [rule for rule in profile["syscalls"] if name in rule["names"]]
    exact = [rule for rule in rules if any(a["op"] != "SCMP_CMP_GE" for a in rule.get("args", []))]
    for rule in (*exact, *(rule for rule in rules if rule not in exact)):
        tests = [a for a in rule.get("args", []) if a["op"] != "SCMP_CMP_GE"]
        if all(arguments[a["index"]] & a["value"] == a["valueTwo"] for a in tests):
            allowed = rule["action"] == "SCMP_ACT_ALLOW"
            return ALLOW if allowed else ERRNO | int(rule["errnoRet"])
    return ERRNO | int(profile["defaultErrnoRet"])


@pytest.mark.parametrize("machine", MACHINES)
def test_every_call_of_the_profile_is_answered_as_it_says(machine: str) -> None:
    audit, numbers = MACHINES[machine]
    program = filter.program(machine)
    for name, number in numbers.items():
        assert answer(program, audit, number) == wanted(machine, name, (0,) * 6), name


@pytest.mark.parametrize("machine", MACHINES)
def test_a_call_nobody_decided_about_does_not_exist(machine: str) -> None:
    audit, numbers = MACHINES[machine]
    program = filter.program(machine)
    for number in set(range(600)) - set(numbers.values()):
        assert answer(program, audit, number) == ERRNO | errno.ENOSYS


def test_other_conventions_are_not_let_in() -> None:
    """Their numbers mean other calls."""
    program = filter.program("x86_64")
    assert answer(program, 0x40000003, 4) == KILL  # i386
    assert answer(program, MACHINES["x86_64"].audit, 0x40000001) == ERRNO | errno.ENOSYS  # x32


_CONDITIONAL = sorted(
    {
        name
        for rule in seccomp.profile("x86_64")["syscalls"]
        if "args" in rule
        for name in rule["names"]
    }
)
_INTERESTING = sorted(
    {
        value
        for rule in seccomp.profile("x86_64")["syscalls"]
        for argument in rule.get("args", [])
        for value in (argument["value"], argument.get("valueTwo", 0))
    }
)


@given(
    name=st.sampled_from(_CONDITIONAL),
    arguments=st.tuples(
        *[
            st.one_of(st.sampled_from(_INTERESTING), st.integers(0, 2**64 - 1)).flatmap(
                lambda value: st.sampled_from([value, value | 1 << 32, value ^ 1])
            )
        ]
        * 6
    ),
)
def test_arguments_decide_as_in_the_profile(name: str, arguments: tuple[int, ...]) -> None:
    """Also with bits above those the kernel looks at."""
    audit, numbers = MACHINES["x86_64"]
    program = filter.program("x86_64")
    cut = tuple(argument & (2**64 - 1) for argument in arguments)
    assert answer(program, audit, numbers[name], *cut) == wanted("x86_64", name, cut)


def test_a_program_is_one_the_kernel_takes() -> None:
    """At most 4,096 steps, all jumps inside, and an answer at the end."""
    for machine in MACHINES:
        steps = list(struct.iter_unpack("=HBBI", filter.program(machine)))
        assert len(steps) <= 4096
        assert steps[-1][0] == RETURN
        for at, (code, if_true, if_false, _) in enumerate(steps):
            if code in {EQUAL, AT_LEAST}:
                assert at + 1 + max(if_true, if_false) < len(steps)


def test_no_call_of_the_profile_lacks_a_number() -> None:
    """One that is missing would be refused without anybody having decided so."""
    profile = seccomp.profile("x86_64")["syscalls"]
    names = set(itertools.chain.from_iterable(rule["names"] for rule in profile))
    assert names <= set(MACHINES["x86_64"].numbers)
