"""A private engine: started by the first, shared, stopped by the last."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import atoll
import atoll.sync
from atoll import errors
from atoll.sdk import _aio


@pytest.fixture
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATOLL_RUNTIME_DEFAULT", "fake")
    return tmp_path / "state"


async def stopped(state_dir: Path) -> bool:
    """Wait until no engine has the lock."""

    def wait() -> bool:
        with (state_dir / "engine.lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return True

    return await asyncio.wait_for(asyncio.to_thread(wait), 20)


def pid_of(state_dir: Path) -> int:
    return int((state_dir / "engine.lock").read_text())


async def test_the_engine_starts_with_the_first_call_and_stops_with_the_last_client(
    state_dir: Path,
) -> None:
    env = atoll.local(state_dir=state_dir)
    assert not state_dir.exists()
    async with env:
        sandbox = atoll.get_sandbox(env.Sandbox, "box")
        await sandbox.exec(["sh", "-c", "echo kept > f"])
        async with atoll.local(state_dir=state_dir) as second:
            assert (await second.version()).engine_id == (await env.version()).engine_id
        await sandbox.exec(["true"])
        assert state_dir.stat().st_mode & 0o777 == 0o700
    assert await stopped(state_dir)
    async with atoll.local(state_dir=state_dir) as again:
        sandbox = atoll.get_sandbox(again.Sandbox, "box")
        assert (await sandbox.exec(["cat", "f"])).stdout == "kept\n"
    assert await stopped(state_dir)


async def test_many_clients_at_once_start_one_engine(state_dir: Path) -> None:
    async def one() -> str:
        async with atoll.local(state_dir=state_dir) as env:
            id = (await env.version()).engine_id
            await asyncio.sleep(0.5)
            return id

    assert len(set(await asyncio.gather(*(one() for _ in range(4))))) == 1
    assert await stopped(state_dir)


async def test_a_client_that_is_killed_gives_its_lease_back(state_dir: Path) -> None:
    code = (
        "import atoll.sync as a, signal, os\n"
        f"env = a.local(state_dir={str(state_dir)!r}); env.version()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code])
    assert done.returncode == -signal.SIGKILL
    assert await stopped(state_dir)


async def test_the_blocking_form_does_the_same(state_dir: Path) -> None:
    def use() -> str:
        with atoll.sync.local(state_dir=state_dir) as env:
            return atoll.sync.get_sandbox(env.Sandbox, "b").exec(["echo", "x"]).stdout

    assert await asyncio.to_thread(use) == "x\n"
    assert await stopped(state_dir)


async def test_a_sandbox_of_an_environment_that_ended_starts_no_engine(state_dir: Path) -> None:
    env = atoll.local(state_dir=state_dir)
    async with env:
        sandbox = atoll.get_sandbox(env.Sandbox, "b")
    with pytest.raises(errors.EngineUnreachableError, match="is closed"):
        await sandbox.exec(["true"])
    assert not state_dir.exists()


async def test_closing_while_the_engine_is_started_leaves_no_engine(state_dir: Path) -> None:
    env = atoll.local(state_dir=state_dir)
    call = asyncio.create_task(env.version())
    await asyncio.sleep(0.1)
    await env.aclose()
    with pytest.raises(errors.EngineUnreachableError, match="is closed"):
        await call
    assert await stopped(state_dir)


@pytest.mark.parametrize(("config", "state_dir"), [(5, None), ("missing.toml", None), (None, 5)])
def test_what_is_no_path_is_a_typed_error(config: Any, state_dir: Any) -> None:
    with pytest.raises(errors.InvalidConfigError):
        atoll.local(config, state_dir=state_dir)


async def test_an_engine_that_is_killed_is_started_again_by_the_next_call(state_dir: Path) -> None:
    async with atoll.local(state_dir=state_dir) as env:
        sandbox = atoll.get_sandbox(env.Sandbox, "b")
        await sandbox.exec(["touch", "f"])
        os.kill(pid_of(state_dir), signal.SIGKILL)
        assert await stopped(state_dir)
        assert (await sandbox.exec(["ls"])).stdout == "f\n"
    assert await stopped(state_dir)


async def test_a_command_goes_on_when_its_engine_is_killed(state_dir: Path) -> None:
    async with atoll.local(state_dir=state_dir) as env:
        sandbox = atoll.get_sandbox(env.Sandbox, "b")
        await sandbox.exec(["true"])
        script = "for i in $(seq 20); do echo $i; sleep 0.1; done"
        call = asyncio.create_task(sandbox.exec(["sh", "-c", script]))
        await asyncio.sleep(0.7)
        os.kill(pid_of(state_dir), signal.SIGKILL)
        assert (await call).stdout == "".join(f"{number}\n" for number in range(1, 21))
    assert await stopped(state_dir)


async def test_why_an_engine_cannot_start_is_its_own_typed_error(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATOLL_RUNTIME_DEFAULT", "nonsense")
    async with atoll.local(state_dir=state_dir) as env:
        with pytest.raises(errors.RuntimeNotAvailableError, match="nonsense"):
            await env.version()


async def test_an_engine_that_dies_without_a_word_is_told_with_the_end_of_its_log(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(arguments: list[str], log: Path) -> dict[str, object]:
        log.write_text("Segmentation fault\n")
        return {}

    monkeypatch.setattr(_aio, "start_engine", broken)
    async with atoll.local(state_dir=state_dir) as env:
        with pytest.raises(errors.EngineUnreachableError, match="Segmentation fault"):
            await env.version()


async def test_a_configuration_file_names_the_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ATOLL_STATE_DIR", raising=False)
    config = tmp_path / "atoll.toml"
    state_dir = tmp_path / "from-file"
    config.write_text(f'[storage]\nstate_dir = "{state_dir}"\n[runtime]\ndefault = "fake"\n')
    async with atoll.local(config) as env:
        await env.version()
    assert await stopped(state_dir)
