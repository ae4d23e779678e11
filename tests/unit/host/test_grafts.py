from pathlib import Path

import pytest

from atoll.errors import InvalidMountConfigError
from atoll.host.grafts import refuse_covered
from atoll.host.mounts import MountEntry


def entry(target: str, fstype: str = "tmpfs") -> MountEntry:
    return MountEntry(Path(target), "none", fstype, "/", frozenset(), shared=False)


MOUNTS = [entry("/", "overlay"), entry("/proc", "proc"), entry("/data", "fuse.s3fs"), entry("/v/x")]


@pytest.mark.parametrize("path", ["/data", "/proc", "/v", "/v/x", "/data/below", "/data/a/b"])
def test_a_mount_covers_no_other_and_lies_in_no_bucket(path: str) -> None:
    with pytest.raises(InvalidMountConfigError):
        refuse_covered(path, MOUNTS)


@pytest.mark.parametrize("path", ["/dat", "/data2", "/workspace/x", "/v/y", "/v/x/below"])
def test_any_other_place_may_be_one(path: str) -> None:
    refuse_covered(path, MOUNTS)
