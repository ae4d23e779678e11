import re
from pathlib import Path

import pytest

from atoll.runtime.bwrap.calls import MACHINES

HEADER = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")


@pytest.mark.parametrize("machine", MACHINES)
def test_a_number_means_one_call(machine: str) -> None:
    numbers = list(MACHINES[machine].numbers.values())
    assert len(numbers) == len(set(numbers))


def test_numbers_are_those_of_the_kernel_s_header() -> None:
    if not HEADER.exists():
        pytest.skip(f"there is no {HEADER.name}")
    found = dict(re.findall(r"#define __NR_(\w+) (\d+)", HEADER.read_text()))
    ours = MACHINES["x86_64"].numbers
    assert {n: str(ours[n]) for n in ours if n in found} == {
        n: found[n] for n in ours if n in found
    }


def test_calls_that_are_new_have_the_same_number_everywhere() -> None:
    """From 424 on the kernel has one table."""
    of_one, of_other = (MACHINES[name].numbers for name in ("x86_64", "aarch64"))
    new = {name for name, number in of_one.items() if number >= 424}
    assert {name: of_other[name] for name in new} == {name: of_one[name] for name in new}
