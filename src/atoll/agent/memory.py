"""Lack of memory: whom the kernel kills first for it."""

from contextlib import suppress


def give_way(score: int) -> None:
    """Have the kernel kill this process before those with a lower *score* (oom_score_adj)."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
        file.write(b"%d" % score)
