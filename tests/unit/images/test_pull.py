"""What a pull writes is bounded while it writes."""

import asyncio
from pathlib import Path

import pytest

from atoll.errors import ImagePullFailedError, InvalidImageError
from atoll.images.pull import bounded

MIB = 1 << 20


async def write(folder: Path, until: int, ended: list[bool]) -> None:
    """Write files of a MiB."""
    try:
        for number in range(until):
            (folder / str(number)).write_bytes(b"x" * MIB)
            await asyncio.sleep(0.001)
        await asyncio.sleep(600 if until > 10 else 0)
    finally:
        ended.append(True)


async def test_what_writes_too_much_is_ended(tmp_path: Path) -> None:
    """A registry can send one blob for ever: its digest is known at the end only."""
    ended: list[bool] = []
    with pytest.raises(InvalidImageError, match="over"):
        await bounded(write(tmp_path, 20, ended), tmp_path, 10 * MIB)
    assert ended


async def test_what_writes_less_comes_to_its_end(tmp_path: Path) -> None:
    ended: list[bool] = []
    await bounded(write(tmp_path, 5, ended), tmp_path / "not there", 1)
    assert ended


async def test_its_own_error_is_passed_on(tmp_path: Path) -> None:
    async def failing() -> None:
        raise ImagePullFailedError("gone")

    with pytest.raises(ImagePullFailedError):
        await bounded(failing(), tmp_path, 1)


async def test_it_ends_with_its_caller(tmp_path: Path) -> None:
    ended: list[bool] = []
    task = asyncio.create_task(bounded(write(tmp_path, 20, ended), tmp_path, 1 << 40))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended
