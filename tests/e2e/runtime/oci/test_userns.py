import os
from collections.abc import Iterator

import pytest

from atoll.runtime.oci.userns import UserNamespaces

pytestmark = pytest.mark.e2e

IDS = 0x7F00_0000, 65_536


@pytest.fixture
def found() -> Iterator[UserNamespaces]:
    if os.geteuid():
        pytest.skip("needs root")
    before = set(os.listdir("/proc/self/fd"))
    yield UserNamespaces()
    assert set(os.listdir("/proc/self/fd")) == before


def test_what_was_prepared_is_what_is_taken_once(found: UserNamespaces) -> None:
    found.prepare("a", *IDS)
    found.prepare("a", *IDS)
    first, second = found.take("a", *IDS), found.take("a", *IDS)
    inodes = {os.fstat(fd).st_ino for fd in (first, second)}
    assert len(inodes) == 2
    assert os.stat("/proc/self/ns/user").st_ino not in inodes
    os.close(first)
    os.close(second)


def test_what_nobody_takes_is_closed(found: UserNamespaces) -> None:
    found.prepare("a", *IDS)
    found.drop("a")
    found.drop("a")
