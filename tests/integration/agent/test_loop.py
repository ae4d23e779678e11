import os
import time

import pytest

from atoll.agent.loop import GONE, READ, Loop


def test_timers_run_in_the_order_they_are_due() -> None:
    loop, seen = Loop(), []
    loop.later(0.03, lambda: (seen.append("c"), loop.stop()))  # type: ignore[func-returns-value,arg-type]
    loop.later(0.02, lambda: seen.append("b"))
    loop.later(0.01, lambda: seen.append("never")).cancel()
    loop.later(0, lambda: seen.append("a"))
    loop.run()
    assert seen == ["a", "b", "c"]


def test_a_handler_that_raises_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Pid 1 must outlive every mistake in it."""
    loop = Loop()

    def broken() -> None:
        raise RuntimeError("mistake")

    loop.later(0, broken)
    loop.later(0.01, loop.stop)
    loop.run()
    assert "mistake" in capsys.readouterr().err


def test_a_forgotten_descriptor_is_silent_also_within_one_round() -> None:
    loop, seen = Loop(), []
    pipes = [os.pipe() for _ in range(2)]

    def handler(reader: int) -> None:
        seen.append(reader)
        for other, _ in pipes:
            loop.forget(other)

    for reader, writer in pipes:
        os.write(writer, b"x")
        loop.watch(reader, READ, lambda _, reader=reader: handler(reader))  # type: ignore[misc]
    loop.later(0.05, loop.stop)
    loop.run()
    assert len(seen) == 1
    for fd in [fd for pair in pipes for fd in pair]:
        os.close(fd)


def test_hang_up_is_told_without_asking_for_data() -> None:
    loop = Loop()
    reader, writer = os.pipe()
    loop.watch(reader, GONE, lambda _: loop.stop())
    os.close(writer)
    began = time.monotonic()
    loop.run()
    assert time.monotonic() - began < 5
    loop.forget(reader)
    os.close(reader)
