import os
from pathlib import Path

import pytest

from atoll.errors import FilesystemError
from atoll.settings import StorageSettings
from atoll.storage.btrfs_layers import UNFINISHED
from atoll.storage.btrfs_trees import Account, BtrfsTrees
from atoll.storage.layers import LayerStore

pytestmark = pytest.mark.e2e

MB = 10**6
ACCOUNT = Account(sha256="a", files=1, size=2, entries=1)


@pytest.fixture
def backend() -> str:
    return "btrfs"


@pytest.fixture
def trees(layers: LayerStore) -> BtrfsTrees:
    assert layers.trees
    return layers.trees


def make(trees: BtrfsTrees, content: bytes, limit: int = 50 * MB) -> Path:
    folder = trees.begin("t", limit)
    try:
        (folder / "f").write_bytes(content)
        trees.publish("t", ACCOUNT)
    finally:
        trees.abandon("t")
    return trees.folder / "t"


async def stage(layers: LayerStore) -> Path:
    await layers.create("a", 64 * MB)
    folder = await layers.attach("a") / "upper" / "p" / "stage"
    folder.mkdir(parents=True)
    return folder


async def test_a_tree_is_shared_and_cannot_be_written_to(
    layers: LayerStore, trees: BtrfsTrees
) -> None:
    content = os.urandom(MB)
    path = make(trees, content)
    with pytest.raises(OSError, match="Read-only"):
        (path / "files" / "f").write_bytes(b"")
    account = trees.account("t")
    assert account
    assert account.sha256 == "a"
    folder = await stage(layers)
    trees.share("t", "a", "p/stage")
    assert (folder / "f").read_bytes() == content
    trees.delete("t")
    trees.delete("t")
    assert (trees.list(), trees.account("t"), trees.usage("t")) == ([], None, 0)
    assert (folder / "f").read_bytes() == content


async def test_nothing_outside_of_the_layer_is_filled(
    layers: LayerStore, trees: BtrfsTrees, folder: Path
) -> None:
    make(trees, b"x")
    await stage(layers)
    upper = await layers.attach("a") / "upper"
    (upper / "link").symlink_to(folder)
    (upper / "full").mkdir()
    (upper / "full" / "f").write_text("mine")
    for path in ("link", "../..", "link/state", "none", "full", "/"):
        with pytest.raises(OSError):
            trees.share("t", "a", path)
    assert (upper / "full" / "f").read_text() == "mine"
    assert not (folder / "f").exists()


async def test_what_does_not_fit_or_was_not_finished_is_no_tree(
    layers: LayerStore, trees: BtrfsTrees, settings: StorageSettings
) -> None:
    with pytest.raises(OSError, match="quota"):
        make(trees, os.urandom(5 * MB), limit=2 * MB)
    assert list(trees.folder.iterdir()) == []
    trees.begin("cut", MB)
    assert (trees.folder / f"{UNFINISHED}cut").is_dir()
    assert trees.list() == []
    await layers.close()
    again = LayerStore(settings, backend="btrfs")
    await again.open()
    await again.close()
    assert list(trees.folder.iterdir()) == []


async def test_a_tree_that_was_damaged_is_told(layers: LayerStore, trees: BtrfsTrees) -> None:
    await stage(layers)
    with pytest.raises(FilesystemError):
        trees.share("t", "a", "p/stage")
