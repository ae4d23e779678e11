import time

from atoll.agent.loop import Loop
from atoll.agent.orphans import Orphans


class Looks:
    """Counts them; each tells what it was told to."""

    def __init__(self, *, left: bool) -> None:
        self.count, self.left = 0, left

    def __call__(self) -> bool:
        self.count += 1
        return self.left


def test_all_that_ask_at_once_share_one_look() -> None:
    loop, looks = Loop(), Looks(left=False)
    orphans = Orphans(loop, looks)
    for _ in range(50):
        orphans.look()
    loop.step()
    loop.later(0, lambda: None)
    loop.step()
    assert looks.count == 1


def test_what_is_left_is_looked_at_again_in_one_row_of_looks_whoever_asks() -> None:
    """Each that asked had a row of its own: with many of them nothing else was done."""
    loop, looks = Loop(), Looks(left=True)
    orphans = Orphans(loop, looks)
    end = time.monotonic() + 0.2
    for _ in range(50):
        orphans.look()
    while time.monotonic() < end:
        loop.step()
    assert 2 <= looks.count <= 6


def test_when_nothing_is_left_it_looks_no_more() -> None:
    loop, left = Loop(), [True, True, False]
    orphans = Orphans(loop, lambda: left.pop(0))
    orphans.look()
    while left:
        loop.step()
    loop.later(0.05, loop.stop)
    loop.run()
