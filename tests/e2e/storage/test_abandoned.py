"""What a lost engine had mounted is unmounted, and nothing else is."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from atoll.host import linux
from atoll.host.mounts import read_mounts
from atoll.storage import abandoned
from atoll.storage.label import store_key

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(os.getuid() != 0, reason="mounts")]


@pytest.fixture
def mounted() -> Iterator[list[Path]]:
    made: list[Path] = []
    yield made
    for path in reversed(made):
        with suppress(OSError):
            linux.umount(path, linux.MNT_DETACH)


def _mount(path: Path, mounted: list[Path]) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    linux.mount("none", path, "tmpfs")
    mounted.append(path)
    return path


async def test_layers_and_roots_go_and_the_disk_below_them_stays(
    tmp_path: Path, mounted: list[Path]
) -> None:
    disk = _mount(tmp_path / "state", mounted)
    layers = _mount(disk / "layers", mounted)
    inner = _mount(layers / "one", mounted)
    own = tmp_path / "roots" / store_key(disk)
    bound = _mount(own, mounted)
    root = _mount(bound / "ref/rootfs", mounted)
    other = _mount(tmp_path / "roots/other/ref/rootfs", mounted)
    await abandoned.remove(disk, tmp_path / "roots")
    assert [path.is_mount() for path in (inner, layers, root, own)] == [False] * 4
    assert not own.exists()
    assert other.is_mount()
    assert disk.is_mount()
    await abandoned.remove(disk, tmp_path / "roots")


async def test_files_under_a_mount_point_are_not_removed(tmp_path: Path) -> None:
    (tmp_path / "state/layers").mkdir(parents=True)
    (tmp_path / "state/layers/f").touch()
    await abandoned.remove(tmp_path / "state", tmp_path / "roots")
    assert (tmp_path / "state/layers/f").exists()


async def test_what_is_mounted_in_a_root_goes_with_it_whatever_lies_on_the_path(
    tmp_path: Path, mounted: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code inside may put a link where the way to a volume was."""
    bystander = _mount(tmp_path / "bystander" / "data", mounted)
    root = _mount(tmp_path / "roots" / store_key(tmp_path / "state") / "ref/rootfs", mounted)
    _mount(root / "way" / "data", mounted)
    table = read_mounts

    def read_and_swap(marker: str = "") -> object:
        found = table(marker)
        if (root / "way").is_dir() and not (root / "way").is_symlink():
            (root / "way").rename(root / "moved")
            (root / "way").symlink_to(bystander.parent)
        return found

    monkeypatch.setattr(abandoned, "read_mounts", read_and_swap)
    await abandoned.remove(tmp_path / "state", tmp_path / "roots")
    assert bystander.is_mount()
    assert not root.exists()
