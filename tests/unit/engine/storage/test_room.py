import os
from pathlib import Path

import pytest

from atoll.engine.storage.room import Room
from atoll.errors import NoSpaceError


def test_all_calls_have_one_limit(tmp_path: Path) -> None:
    room = Room(tmp_path, limit=10, reserve=0)
    first, second = room.share(), room.share()
    first.take(6)
    second.take(4)
    with pytest.raises(NoSpaceError):
        second.take(1)
    first.release()
    first.release()
    second.take(6)
    assert room.taken == 10


def test_the_reserve_stays_free(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    share = Room(tmp_path, limit=1 << 60, reserve=disk.f_blocks * disk.f_frsize).share()
    with pytest.raises(NoSpaceError) as caught:
        share.take(1)
    assert caught.value.context["reserve"] == disk.f_blocks * disk.f_frsize
