"""The seccomp profile of `atoll.runtime.oci.seccomp` as a BPF program, which is what bubblewrap takes.

Level `container` hands the profile to runc, which compiles it with libseccomp. Here the same profile
is compiled without it: one list of calls for both levels, no library that a host may lack.

Calls with conditions come first, each as its rules in their order. All others are ranges of numbers
with one answer. The kernel keeps a bitmap of what is allowed whatever the arguments (5.11), so the
length of the program costs most calls nothing.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from atoll.host import bpf
from atoll.host.bpf import Step
from atoll.runtime.bwrap.calls import MACHINES
from atoll.runtime.oci import seccomp

Rule = Mapping[str, Any]


def program(machine: str) -> bytes:
    """Return the filter for *machine*, an array of struct sock_filter.

    Raises:
        KeyError: there is no profile for this machine.
    """
    profile = seccomp.profile(machine)
    audit, numbers = MACHINES[machine]
    missing = bpf.ERRNO | profile["defaultErrnoRet"]
    rules = _by_call(profile["syscalls"], numbers)
    steps = bpf.opening(audit, missing)
    for number, found in rules.items():
        if found[0].get("args"):
            body = [*_conditions(found), Step(bpf.RETURN, missing)]
            steps += [Step(bpf.EQUAL, number, 0, len(body)), *body]
    plain = {number: _answer(found[0]) for number, found in rules.items()}
    (_, lowest), *ranges = _ranges(plain, missing)
    for first, answer in reversed(ranges):
        steps += [Step(bpf.AT_LEAST, first, 0, 1), Step(bpf.RETURN, answer)]
    steps.append(Step(bpf.RETURN, lowest))
    return bpf.packed(steps)


def _by_call(rules: Iterable[Rule], numbers: Mapping[str, int]) -> dict[int, list[Rule]]:
    found: dict[int, list[Rule]] = {}
    for rule in rules:
        for name in rule["names"]:
            if name in numbers:
                found.setdefault(numbers[name], []).append(rule)
    # As libseccomp has it: what looks at a value comes before what takes all.
    return {n: sorted(of, key=_takes_all) for n, of in found.items()}


def _takes_all(rule: Rule) -> bool:
    return all(argument["op"] == "SCMP_CMP_GE" for argument in rule.get("args", ()))


def _conditions(rules: Iterable[Rule]) -> Iterable[Step]:
    for rule in rules:
        if _takes_all(rule):
            yield Step(bpf.RETURN, _answer(rule))
            return
        tests = [_test(argument) for argument in rule["args"]]
        left = sum(map(len, tests)) + 1
        for test in tests:
            left -= len(test)
            *before, compare = test
            yield from before
            yield compare._replace(if_false=left)
        yield Step(bpf.RETURN, _answer(rule))


def _test(argument: Mapping[str, Any]) -> list[Step]:
    """Compare the low half of an argument; masks of the profile leave nothing of the upper one."""
    return [
        bpf.argument(argument["index"]),
        Step(bpf.AND, argument["value"]),
        Step(bpf.EQUAL, argument["valueTwo"]),
    ]


def _answer(rule: Rule) -> int:
    if rule["action"] == "SCMP_ACT_ALLOW":
        return bpf.ALLOW
    return bpf.ERRNO | int(rule["errnoRet"])


def _ranges(answers: Mapping[int, int], missing: int) -> Iterable[tuple[int, int]]:
    """Yield the first number of each range with one answer, from 0 up."""
    numbers = range(max(answers) + 2)
    for answer, members in groupby(numbers, key=lambda number: answers.get(number, missing)):
        yield next(members), answer
