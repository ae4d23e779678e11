"""Certificates of the host are read when they changed, not at every start."""

from pathlib import Path

import pytest

from atoll.images import certificates, store
from atoll.images.certificates import Trust
from atoll.images.store import ImageStore
from atoll.settings import ImageSettings, StorageSettings


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where host_trust was asked to write, each time it was; it writes there."""
    calls: list[Path] = []

    def host_trust(cache_dir: Path) -> Trust:
        calls.append(cache_dir)
        (cache_dir / "made").mkdir(exist_ok=True)
        return Trust(directory=cache_dir / "made", env={"A": "1"})

    bundle = tmp_path / "bundle.crt"
    bundle.write_text("one")
    monkeypatch.setattr(certificates, "_BUNDLES", (str(bundle),))
    monkeypatch.setattr(store, "host_trust", host_trust)
    return calls


def made(tmp_path: Path, **settings: bool) -> ImageStore:
    return ImageStore(StorageSettings(cache_dir=tmp_path), ImageSettings(**settings))  # type: ignore[arg-type]


async def test_they_are_read_again_only_when_the_host_made_them_anew(
    tmp_path: Path, read: list[Path]
) -> None:
    images = made(tmp_path)
    first = await images.trust()
    assert await images.trust() == first
    assert len(read) == 1
    (tmp_path / "bundle.crt").write_text("another")
    await images.trust()
    assert len(read) == 2


async def test_a_cache_that_was_emptied_is_filled_again(tmp_path: Path, read: list[Path]) -> None:
    images = made(tmp_path)
    trust = await images.trust()
    assert trust
    trust.directory.rmdir()
    assert await images.trust() == trust
    assert trust.directory.is_dir()


async def test_who_trusts_nothing_of_the_host_reads_nothing(
    tmp_path: Path, read: list[Path]
) -> None:
    assert await made(tmp_path, trust_host_ca=False).trust() is None
    assert read == []
