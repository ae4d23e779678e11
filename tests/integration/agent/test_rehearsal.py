import os

from atoll.agent.rehearsal import rehearse_start


def test_a_rehearsal_leaves_nothing_behind() -> None:
    before = len(os.listdir("/proc/self/fd"))
    rehearse_start()
    assert len(os.listdir("/proc/self/fd")) == before
