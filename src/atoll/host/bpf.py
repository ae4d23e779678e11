"""Programs that filter system calls: the instructions of classic BPF that they need. Pure."""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

LOAD, AND, EQUAL, SET, AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x45, 0x35, 0x06
KILL, ALLOW, ERRNO = 0x8000_0000, 0x7FFF_0000, 0x0005_0000
"""Answers; an errno is added to the last."""

X32: Final = 0x4000_0000
"""From here on are the calls of x32, a second convention with the same AUDIT_ARCH."""

_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data


class Step(NamedTuple):
    """One struct sock_filter; jumps count steps that are left out."""

    code: int
    value: int
    if_true: int = 0
    if_false: int = 0


def opening(audit: int, x32: int) -> list[Step]:
    """Return the first steps of every filter; they leave the number of the call loaded.

    Args:
        audit: AUDIT_ARCH_* of the machine; calls by another convention end the process.
        x32: the answer to calls of x32.
    """
    return [
        Step(LOAD, _ARCH),
        Step(EQUAL, audit, 1, 0),
        Step(RETURN, KILL),
        Step(LOAD, _NUMBER),
        Step(AT_LEAST, X32, 0, 1),
        Step(RETURN, x32),
    ]


def argument(index: int) -> Step:
    """Load the low half of an argument."""
    return Step(LOAD, _ARGUMENTS + 8 * index)


def packed(steps: Iterable[Step]) -> bytes:
    """Return an array of struct sock_filter."""
    return b"".join(struct.pack("=HBBI", s.code, s.if_true, s.if_false, s.value) for s in steps)
