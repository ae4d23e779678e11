import os
from collections.abc import Iterator

import pytest

from e2e.hosts import Host


@pytest.fixture
def host() -> Iterator[Host]:
    if os.geteuid():
        pytest.skip("needs root")
    found = Host()
    yield found
    found.close()
