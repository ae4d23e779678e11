import os
from pathlib import Path

import pytest

from atoll.errors import FileNotFoundError, NoSpaceError
from atoll.storage.vault import Vault, refuse_full


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    made = Vault(tmp_path / "vault", 0)
    made.open()
    return made


async def test_an_archive_is_read_as_it_was_written(vault: Vault) -> None:
    pieces = [os.urandom(100_000), b"", os.urandom(3_000_000)]
    async with vault.writing("a") as archive:
        for piece in pieces:
            await archive.write(piece)
    assert archive.size == 3_100_000
    with vault.opened("a") as file:
        assert file.read() == b"".join(pieces)
    assert await vault.list() == ["a"]


async def test_what_is_not_finished_is_not_there(vault: Vault, tmp_path: Path) -> None:
    async def broken() -> None:
        async with vault.writing("a") as archive:
            await archive.write(b"half")
            assert await vault.list() == []
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await broken()
    assert os.listdir(tmp_path / "vault") == []
    with pytest.raises(FileNotFoundError):
        vault.opened("a")


async def test_drafts_of_a_killed_engine_are_removed_and_archives_stay(tmp_path: Path) -> None:
    folder = tmp_path / "vault"
    folder.mkdir()
    (folder / ".new-a").touch()
    (folder / "b").touch()
    vault = Vault(folder, 0)
    vault.open()
    assert os.listdir(folder) == ["b"]


async def test_deleting_may_be_repeated(vault: Vault) -> None:
    async with vault.writing("a"):
        pass
    await vault.delete("a")
    await vault.delete("a")
    assert await vault.list() == []


async def test_a_full_disk_takes_no_archive(tmp_path: Path) -> None:
    vault = Vault(tmp_path / "vault", 1 << 60)
    vault.open()
    with pytest.raises(NoSpaceError):
        async with vault.writing("a"):
            pass
    assert await vault.list() == []
    with pytest.raises(NoSpaceError):
        refuse_full(tmp_path, 1 << 60)


async def test_space_is_looked_at_while_it_is_written(vault: Vault, tmp_path: Path) -> None:
    async def write() -> None:
        async with vault.writing("a") as archive:
            archive._reserve = 1 << 60
            for _ in range(70):
                await archive.write(bytes(1 << 20))

    with pytest.raises(NoSpaceError):
        await write()
    assert os.listdir(tmp_path / "vault") == []
