import os

from atoll.agent.devices import open_devices
from atoll.agent.rehearsal import rehearse_start


def test_a_rehearsal_leaves_nothing_behind() -> None:
    devices = open_devices()
    before = len(os.listdir("/proc/self/fd"))
    rehearse_start(devices)
    assert len(os.listdir("/proc/self/fd")) == before
    for fd in devices:
        os.close(fd)
