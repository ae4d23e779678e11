import errno

import pytest

import syscalls
from atoll.network.gateway import seccomp

ALLOWED, REFUSED, MISSING, KILLED = (
    0x7FFF_0000,
    0x0005_0001,
    0x0005_0000 | errno.ENOSYS,
    0x8000_0000,
)


def answer(machine: str, number: int, *args: int, audit: int | None = None) -> int:
    """Return what the filter answers."""
    arch = seccomp.MACHINES[machine].audit if audit is None else audit
    return syscalls.answer(seccomp.program(machine), arch, number, *args)


@pytest.fixture(params=sorted(seccomp.MACHINES))
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_what_is_named_is_refused_and_all_else_is_not(machine: str) -> None:
    _, refused, calls = seccomp.MACHINES[machine]
    special = set(calls.values())
    for number in range(512):
        if number not in special:
            wanted = REFUSED if number in refused.values() else ALLOWED
            assert answer(machine, number) == wanted, number
    assert not special & set(refused.values())


def test_arguments_decide_about_threads_memory_and_sockets(machine: str) -> None:
    calls = seccomp.MACHINES[machine].calls
    assert answer(machine, calls["clone3"]) == MISSING
    assert answer(machine, calls["clone"], 0x11) == REFUSED
    assert answer(machine, calls["clone"], 0x3D0F00) == ALLOWED
    for name in ("mmap", "mprotect"):
        assert answer(machine, calls[name], 0, 4096, 3) == ALLOWED
        assert answer(machine, calls[name], 0, 4096, 7) == REFUSED
    for family in (1, 2, 10):
        assert answer(machine, calls["socket"], family) == ALLOWED
    for family in (0, 3, 16, 17, 38, 40):
        assert answer(machine, calls["socket"], family) == REFUSED


def test_another_convention_is_none(machine: str) -> None:
    assert answer(machine, 0, audit=0x4000_0003) == KILLED
    assert answer(machine, 0x4000_0000) == REFUSED
