import os
from pathlib import Path

import pytest

from atoll.network import netns

pytestmark = pytest.mark.e2e


def here() -> str:
    return os.readlink("/proc/thread-self/ns/net")


def kept(path: Path) -> str:
    netns.keep(path)
    return here()


def test_a_kept_namespace_outlives_the_thread_that_made_it(folder: Path) -> None:
    path = folder / "kept"
    inside = netns.call_in_new(lambda: kept(path))
    try:
        assert netns.call_in(path, here) == inside != here()
    finally:
        netns.forget(path)
    assert not path.exists()
    with pytest.raises(FileNotFoundError):
        netns.call_in(path, here)


def test_keeping_again_replaces_what_a_crash_left(folder: Path) -> None:
    path = folder / "kept"
    first = netns.call_in_new(lambda: kept(path))
    second = netns.call_in_new(lambda: kept(path))
    assert first != second == netns.call_in(path, here)
    netns.forget(path)
    netns.forget(path)
    assert str(path) not in Path("/proc/self/mountinfo").read_text()


def test_an_error_inside_reaches_the_caller_who_stayed_outside(folder: Path) -> None:
    before = here()
    with pytest.raises(ZeroDivisionError):
        netns.call_in_new(lambda: 1 // 0)
    assert here() == before


def test_what_is_no_namespace_is_not_entered(folder: Path) -> None:
    (folder / "file").touch()
    with pytest.raises(OSError):
        netns.call_in(folder / "file", here)
