from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from atoll.engine import components
from atoll.errors import RuntimeNotAvailableError
from atoll.settings import RuntimeSettings, Settings, StorageSettings


def settings(tmp_path: Path, level: str) -> Settings:
    return Settings(
        storage=StorageSettings(state_dir=tmp_path, cache_dir=tmp_path),
        runtime=RuntimeSettings(default=level),
    )


async def test_an_unknown_level_is_refused_by_name(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        with pytest.raises(RuntimeNotAvailableError, match="magic"):
            await components.built(settings(tmp_path, "magic"), "e", stack)


async def test_without_root_level_container_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    async with AsyncExitStack() as stack:
        with pytest.raises(RuntimeNotAvailableError) as caught:
            await components.built(settings(tmp_path, "container"), "e", stack)
    assert "root" in (caught.value.suggestion or "")


async def test_the_fake_level_is_there_only_when_it_is_the_default(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        parts = await components.built(settings(tmp_path, "fake"), "e", stack)
    assert parts.runtime("fake").level == "fake"
    with pytest.raises(RuntimeNotAvailableError) as caught:
        parts.runtime("container")
    assert caught.value.context["available"] == ["fake"]
