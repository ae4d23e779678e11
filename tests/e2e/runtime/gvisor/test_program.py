import shutil
from pathlib import Path

import pytest

from atoll.errors import RuntimeNotAvailableError
from atoll.host import process
from atoll.runtime.gvisor import program
from atoll.runtime.oci import agent_bundle
from atoll.runtime.oci.agent_bundle import AgentBundle
from e2e.runtime.roots import CACHE

pytestmark = pytest.mark.e2e


@pytest.fixture
async def agent() -> AgentBundle:
    if shutil.which("runsc") is None:
        pytest.skip("runsc is not installed")
    return await agent_bundle.build(CACHE)


async def test_a_platform_that_works_is_found_once(agent: AgentBundle, tmp_path: Path) -> None:
    chosen = await program.choose(tmp_path, agent)
    assert chosen.name in program.PLATFORMS
    assert chosen.name in chosen.reason
    kept = (tmp_path / "gvisor.json").read_bytes()
    assert await program.choose(tmp_path, agent) == chosen
    (tmp_path / "gvisor.json").write_bytes(b"half of ")
    assert await program.choose(tmp_path, agent) == chosen
    assert (tmp_path / "gvisor.json").read_bytes() == kept


async def test_a_platform_that_does_not_exist_is_told_as_what_it_is(agent: AgentBundle) -> None:
    found = process.find(program.PROGRAM)
    assert found
    assert "nonsense" in await program.tried(Path(found), "nonsense", agent)


async def test_a_program_that_hangs_is_given_up(
    agent: AgentBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As kvm does on some virtual machines; nothing of it stays."""
    hangs = tmp_path / "runsc"
    hangs.write_text("#!/bin/sh\nsetsid sleep 613 &\nsleep 613\n")
    hangs.chmod(0o755)
    monkeypatch.setattr(program, "TRIAL", 0.5)
    assert "does not answer" in await program.tried(hangs, "kvm", agent)
    left = await process.run(["pgrep", "-f", "sleep 613"])
    assert left.stdout == b""


async def test_a_host_without_runsc_has_no_such_level(
    agent: AgentBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "PROGRAM", "no-such-runsc")
    with pytest.raises(RuntimeNotAvailableError, match="not installed"):
        await program.choose(tmp_path, agent)
