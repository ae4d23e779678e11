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


async def nothing() -> set[str]:
    return set()


async def stored(vault: Vault, id: str, *pieces: bytes) -> None:
    async with vault.writing(id) as archive:
        for piece in pieces:
            await archive.write(piece)
        assert archive.size == sum(map(len, pieces))
        await archive.finish()
        await archive.publish(b"{}")
        archive.keep()


async def test_an_archive_is_read_as_it_was_written(vault: Vault) -> None:
    pieces = [os.urandom(100_000), b"", os.urandom(3_000_000)]
    await stored(vault, "a", *pieces)
    async with vault.opened("a") as file:
        assert file.read() == b"".join(pieces)
    assert await vault.orphans(nothing) == {"a"}


@pytest.mark.parametrize("steps", [0, 1, 2])
async def test_what_is_not_kept_is_not_there(vault: Vault, tmp_path: Path, steps: int) -> None:
    async def broken() -> None:
        async with vault.writing("a") as archive:
            await archive.write(b"half")
            if steps > 0:
                await archive.finish()
            if steps > 1:
                await archive.publish(b"{}")
            assert await vault.orphans(nothing) == set()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await broken()
    assert os.listdir(tmp_path / "vault") == []
    with pytest.raises(FileNotFoundError):
        async with vault.opened("a"):
            pass


async def test_drafts_of_a_killed_engine_are_removed_and_archives_stay(tmp_path: Path) -> None:
    folder = tmp_path / "vault"
    folder.mkdir()
    (folder / ".new-a").touch()
    (folder / "b").touch()
    vault = Vault(folder, 0)
    vault.open()
    assert os.listdir(folder) == ["b"]


async def test_deleting_may_be_repeated(vault: Vault) -> None:
    await stored(vault, "a")
    await vault.delete("a")
    await vault.delete("a")
    assert await vault.orphans(nothing) == set()


async def test_an_archive_goes_after_its_row_or_stays(vault: Vault, tmp_path: Path) -> None:
    await stored(vault, "a")
    with pytest.raises(RuntimeError):
        async with vault.deleting("a"):
            raise RuntimeError
    assert os.listdir(tmp_path / "vault") == ["a"]
    async with vault.deleting("a"):
        assert os.listdir(tmp_path / "vault") == ["a"]
    assert os.listdir(tmp_path / "vault") == []


async def test_a_full_disk_takes_no_archive(tmp_path: Path) -> None:
    vault = Vault(tmp_path / "vault", 1 << 60)
    vault.open()
    with pytest.raises(NoSpaceError):
        async with vault.writing("a"):
            pass
    assert await vault.orphans(nothing) == set()
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
