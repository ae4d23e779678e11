import os
from pathlib import Path

import pytest

from atoll.runtime.oci import unusable

HOSTS = {"/etc/hosts": False, "/run/atoll/certificates": True}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    top = tmp_path / "root"
    (top / "etc").mkdir(parents=True)
    (top / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\n")
    return top


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_a_usable_root_is_left_as_it_is(root: Path) -> None:
    unusable.clear(root, HOSTS)
    assert (names(root), names(root / "etc")) == ({"etc"}, {"passwd"})


def test_a_link_within_the_root_is_used(root: Path) -> None:
    """Images link /etc/passwd or a whole directory to elsewhere in themselves."""
    (root / "etc").rename(root / "static")
    (root / "etc").symlink_to("/static")
    (root / "passwd").symlink_to("/etc/passwd")
    unusable.clear(root, HOSTS)
    assert names(root) == {"static", "etc", "passwd"}


def test_a_link_out_of_the_root_is_not_followed(root: Path) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    os.mkfifo(outside / "hosts")
    (root / "etc").rename(root / "old")
    (root / "etc").symlink_to(f"../../{'../' * 40}{outside}")
    unusable.clear(root, HOSTS)
    assert names(outside) == {"hosts"}
    assert names(root) == {"old", "etc.atoll-unusable"}


def test_what_was_moved_aside_before_stays(root: Path) -> None:
    """And a name taken on purpose keeps nothing from being moved."""
    (root / "etc/hosts.atoll-unusable").write_text("first")
    (root / "etc/hosts").mkdir()
    unusable.clear(root, HOSTS)
    assert (root / "etc/hosts.atoll-unusable").read_text() == "first"
    assert len(names(root / "etc")) == 3
    assert not (root / "etc/hosts").exists()


@pytest.mark.parametrize(("size", "left"), [(1 << 20, True), ((1 << 20) + 1, False)])
def test_a_file_that_runtimes_read_is_small(root: Path, size: int, left: bool) -> None:
    os.truncate(root / "etc/passwd", size)
    unusable.clear(root, {})
    assert (root / "etc/passwd").exists() is left


def test_a_file_is_no_place_for_a_directory(root: Path) -> None:
    (root / "run").mkdir()
    (root / "run/atoll").write_text("data")
    unusable.clear(root, HOSTS)
    assert (root / "run/atoll.atoll-unusable").read_text() == "data"
