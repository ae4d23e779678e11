import os

import pytest

from atoll.storage.buckets import fuse

pytestmark = pytest.mark.e2e


def test_a_file_system_that_nobody_serves_fails_at_once() -> None:
    """Whoever uses it when its server ends gets an error, and does not wait for ever."""
    if os.geteuid():
        pytest.skip("needs root")
    system = fuse.made("atoll-test", read_only=True)
    system.close_device()
    with pytest.raises(OSError):
        os.stat(system.mount)
    system.close()
    system.close()
    with pytest.raises(OSError):
        os.fstat(system.device)
