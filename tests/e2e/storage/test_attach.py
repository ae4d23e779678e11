import os
from pathlib import Path

import pytest

from atoll.errors import FileNotFoundError, InvalidMountConfigError, SecurityError
from atoll.host.mounts import mount_at, mounts_below, read_mounts
from atoll.storage.layers import LayerStore
from atoll.storage.rootfs import RootfsStore
from e2e.storage.conftest import ID_BASE, ID_COUNT
from e2e.storage.inside import as_id

pytestmark = pytest.mark.e2e

MB = 10**6
Image = tuple[Path, Path]


@pytest.fixture
async def root(layers: LayerStore, roots: RootfsStore, image: Image) -> Path:
    await layers.create("layer", 64 * MB)
    await layers.create("vol-1", 32 * MB)
    return await roots.mount("ref", image, "layer", ID_BASE, ID_COUNT)


async def test_files_are_those_of_the_volume_with_the_roots_ids(
    layers: LayerStore, roots: RootfsStore, root: Path
) -> None:
    await roots.attach("ref", "/data/of/mine", "vol-1", read_only=False)
    inside = root / "data" / "of" / "mine"
    as_id(ID_BASE, lambda: (inside / "f").write_text("kept"))
    folder = await layers.attach("vol-1")
    assert (folder / "upper" / "f").read_text() == "kept"
    assert (folder / "upper" / "f").stat().st_uid == 0
    assert [p.stat().st_uid for p in (inside, inside / "f", root / "data")] == [ID_BASE] * 3
    entry = mount_at(inside, read_mounts())
    assert entry
    assert {"nosuid", "nodev"} <= entry.options


async def test_the_limit_of_the_volume_holds_not_that_of_the_root(
    roots: RootfsStore, root: Path
) -> None:
    await roots.attach("ref", "/data", "vol-1", read_only=False)

    def fill() -> int:
        written = 0
        try:
            with (root / "data" / "big").open("wb", buffering=0) as file:
                while written < 60 * MB:
                    written += file.write(os.urandom(MB))
                    os.fsync(file.fileno())
        except OSError:
            pass
        return written

    assert 8 * MB < as_id(ID_BASE, fill) < 34 * MB


async def test_a_read_only_volume_cannot_be_written(
    layers: LayerStore, roots: RootfsStore, root: Path
) -> None:
    folder = await layers.attach("vol-1")
    (folder / "upper" / "f").write_text("given")
    await roots.attach("ref", "/data", "vol-1", read_only=True)
    assert as_id(ID_BASE, (root / "data" / "f").read_text) == "given"
    with pytest.raises(OSError, match="Read-only"):
        as_id(ID_BASE, lambda: (root / "data" / "f").write_text("changed"))


@pytest.mark.parametrize("target", ["/escape/data", "/etc/out", "/loop"])
async def test_a_link_on_the_way_is_refused_and_nothing_outside_is_made(
    roots: RootfsStore, root: Path, folder: Path, target: str
) -> None:
    outside = folder / "outside"
    outside.mkdir(mode=0o777)

    def plant() -> None:
        (root / "escape").symlink_to(outside)
        (root / "loop").symlink_to("loop")
        (root / "etc" / "out").symlink_to("../../../../../.." + str(outside))

    as_id(ID_BASE, plant)
    with pytest.raises(SecurityError, match="link"):
        await roots.attach("ref", target, "vol-1", read_only=False)
    assert [*outside.iterdir()] == []
    assert not mounts_below(root, read_mounts())


async def test_a_file_in_the_way_is_named(roots: RootfsStore, root: Path) -> None:
    with pytest.raises(InvalidMountConfigError, match="passwd"):
        await roots.attach("ref", "/etc/passwd/data", "vol-1", read_only=False)


async def test_what_is_not_there_is_refused(roots: RootfsStore, root: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await roots.attach("ref", "/data", "vol-2", read_only=False)


async def test_it_goes_with_the_root_and_its_files_stay(
    layers: LayerStore, roots: RootfsStore, root: Path, folder: Path
) -> None:
    await roots.attach("ref", "/data", "vol-1", read_only=False)
    as_id(ID_BASE, lambda: (root / "data" / "f").write_text("kept"))
    await roots.unmount("ref")
    assert not mounts_below(folder / "roots", read_mounts())
    assert (await layers.attach("vol-1") / "upper" / "f").read_text() == "kept"
    await layers.delete("vol-1")
