"""Entries of engines: a lock that goes with the process tells who is alive."""

import os
import signal
from pathlib import Path

import pytest

from atoll.engine.leftovers import registry
from atoll.engine.leftovers.registry import STORE, Gone, Registry
from atoll.errors import ResourceBusyError


@pytest.fixture
def entries(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "engines")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / STORE).touch()
    return tmp_path / "state"


async def test_one_that_runs_is_never_gone(entries: Registry, state: Path) -> None:
    entry = await entries.enter("a", state)
    (state / STORE).unlink()
    with entries.gone() as found:
        assert found == []
    os.close(entry)


async def test_one_whose_state_is_there_is_never_gone(entries: Registry, state: Path) -> None:
    os.close(await entries.enter("a", state))
    with entries.gone() as found:
        assert found == []


async def test_neither_process_nor_state_is_gone_until_forgotten(
    entries: Registry, state: Path
) -> None:
    os.close(await entries.enter("a", state))
    os.close(await entries.enter("b", state.parent / "never"))
    (state / STORE).unlink()
    with entries.gone() as found:
        assert found == [Gone("a", state), Gone("b", state.parent / "never")]
        with entries.gone() as again:
            assert again == []  # two do not remove the same
        entries.forget(found[0])
    with entries.gone() as found:
        assert [one.engine_id for one in found] == ["b"]


async def test_a_killed_process_lets_go(entries: Registry, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        entries._enter("a", tmp_path / "state")
        os.write(writer, b"x")
        signal.pause()
    os.read(reader, 1)
    with entries.gone() as found:
        assert found == []
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with entries.gone() as found:
        assert [one.engine_id for one in found] == ["a"]
    os.close(reader)
    os.close(writer)


async def test_who_comes_back_meanwhile_has_an_entry_of_its_own(
    entries: Registry, state: Path
) -> None:
    """The lock of an entry that was taken away protects nobody."""
    stale = await entries.enter("a", state)
    entries.forget(Gone("a", state))
    entry = await entries.enter("a", state)
    (state / STORE).unlink()
    os.close(stale)
    with entries.gone() as found:
        assert found == []
    os.close(entry)


async def test_an_id_is_used_once(
    entries: Registry, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "PATIENCE", 0.1)
    entry = await entries.enter("a", state)
    with pytest.raises(ResourceBusyError, match="runs on this host"):
        await entries.enter("a", state)
    entries.leave(entry, "a", clean=True)
    entries.leave(await entries.enter("a", state), "a", clean=False)
    assert os.listdir(state.parent / "engines") == ["a"]


async def test_nothing_there_is_nobody(entries: Registry) -> None:
    with entries.gone() as found:
        assert found == []
