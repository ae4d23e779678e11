"""What the image tests share: root, a store with the base image, and a private one without."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll.images.store import ImageStore
from atoll.settings import ImageSettings, StorageSettings


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(autouse=True)
def _root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")


@pytest.fixture
def no_mounts_left() -> Iterator[None]:
    """Fail when a test leaves a mount behind in the store."""
    yield
    mounts = Path("/proc/self/mounts").read_text()
    assert "/images/build/" not in mounts
    assert "/images/tmp/" not in mounts


@pytest.fixture
def host_store() -> ImageStore:
    """The host's own store: building the base image for each test would take half a minute."""
    return ImageStore(StorageSettings(), ImageSettings())


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    """A private, empty store."""
    return ImageStore(StorageSettings(cache_dir=tmp_path / "cache"), ImageSettings())
