import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.disks import Disk


@pytest.fixture
def disk() -> Iterator[Disk]:
    if os.geteuid():
        pytest.skip("needs root")
    with tempfile.TemporaryDirectory(prefix="atoll-e2e-", dir="/tmp") as folder:
        made = Disk(Path(folder))
        try:
            yield made
        finally:
            made.close()
