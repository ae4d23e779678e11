import os
import subprocess
import sys

import pytest

from atoll.host import linux

pytestmark = pytest.mark.e2e


def test_what_fails_inside_is_told_by_number() -> None:
    """Nothing is mounted at the name: EINVAL, from the namespace that was named."""
    if os.geteuid():
        pytest.skip("needs root")
    own, folder = os.open("/proc/self/ns/mnt", os.O_RDONLY), os.open("/tmp", os.O_PATH)
    done = subprocess.run(
        [sys.executable, "-I", "-m", "atoll.host.graft", "detach", str(folder), "no-such-name",
         str(own), str(linux.MNT_DETACH)],
        pass_fds=[own, folder], capture_output=True, text=True,
    )  # fmt: skip
    os.close(own)
    os.close(folder)
    assert (done.returncode, done.stderr.split()[0]) == (1, "2")
