from datetime import UTC, datetime

import pytest

from atoll.engine.storage import packages
from atoll.engine.storage.volume_table import Stored
from atoll.errors import ValidationFailedError
from atoll.wire.volumes import PACKAGE_CACHE


def volume(*, read_only: bool = False, shared: bool = False, private: bool = False) -> Stored:
    return Stored(
        name="v",
        namespace="N",
        layer_id="vol-1",
        size=1,
        read_only=read_only,
        shared=shared,
        private=private,
        created_at=datetime.now(UTC),
    )


def test_every_tool_keeps_its_cache_in_the_volume() -> None:
    folders = {path for name, path in packages.ENV.items() if name != "UV_LINK_MODE"}
    assert len(folders) == 4
    assert all(path.startswith(f"{PACKAGE_CACHE}/") for path in folders)


def test_a_volume_in_which_one_could_leave_something_for_another_is_no_cache() -> None:
    packages.check(volume(private=True))
    packages.check(volume(read_only=True))
    for unsafe in (volume(), volume(shared=True)):
        with pytest.raises(ValidationFailedError):
            packages.check(unsafe)
