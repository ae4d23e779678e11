from atoll.host import bpf
from atoll.host.bpf import Step
from syscalls import answer

AUDIT = 0xC000_003E
REFUSED = bpf.ERRNO | 1


def test_a_program_begins_with_the_convention_of_its_calls() -> None:
    program = bpf.packed([*bpf.opening(AUDIT, REFUSED), Step(bpf.RETURN, bpf.ALLOW)])
    assert len(program) == 7 * 8
    assert answer(program, AUDIT, 39) == bpf.ALLOW
    assert answer(program, AUDIT, bpf.X32 | 39) == REFUSED
    assert answer(program, 0x4000_0003, 39) == bpf.KILL


def test_the_number_is_loaded_then_arguments_are_as_asked() -> None:
    steps = [
        *bpf.opening(AUDIT, REFUSED),
        Step(bpf.EQUAL, 5, 0, 2),
        bpf.argument(2),
        Step(bpf.EQUAL, 7, 1, 0),
        Step(bpf.RETURN, REFUSED),
        Step(bpf.RETURN, bpf.ALLOW),
    ]
    assert answer(bpf.packed(steps), AUDIT, 5, 0, 0, 7) == bpf.ALLOW
    assert answer(bpf.packed(steps), AUDIT, 5, 7, 7, 8) == REFUSED
    assert answer(bpf.packed(steps), AUDIT, 6) == REFUSED
