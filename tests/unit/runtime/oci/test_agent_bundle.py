import importlib.util
import os
import struct
from pathlib import Path

import pytest

from atoll.runtime.oci import agent_bundle
from atoll.runtime.oci.agent_bundle import AgentBundle, Interpreter


@pytest.fixture
def current(tmp_path: Path) -> AgentBundle:
    path = tmp_path / "agent" / "current"
    path.mkdir(parents=True)
    return AgentBundle(path=path, loader="ld.so")


def old_bundle(current: AgentBundle, name: str = "old") -> Path:
    path = current.path.with_name(name)
    path.mkdir()
    os.utime(path, (0, 0))
    return path


def test_a_bundle_nobody_uses_is_removed(current: AgentBundle) -> None:
    old = old_bundle(current)
    assert agent_bundle.collect(current) == [old]
    assert not old.exists()


def test_a_bundle_in_use_is_kept_until_its_last_sandbox_is_gone(
    current: AgentBundle, tmp_path: Path
) -> None:
    """An agent imports modules when it needs them: they must be there as long as it lives."""
    old, run_dir = old_bundle(current), tmp_path / "run"
    run_dir.mkdir()
    agent_bundle.use(old, "e1-a", run_dir)
    agent_bundle.use(old, "e1-a", run_dir)
    assert agent_bundle.collect(current) == []
    agent_bundle.release(old, "e1-a")
    assert agent_bundle.collect(current) == [old]
    assert sorted(path.name for path in old.parent.iterdir()) == ["current"]


def test_an_engine_keeps_the_bundle_it_starts_from_and_lets_go_of_earlier_ones(
    current: AgentBundle, tmp_path: Path
) -> None:
    """An engine that was idle for long must still find it when the next sandbox starts."""
    old = AgentBundle(path=old_bundle(current), loader="ld.so")
    agent_bundle.adopt(old, "e1", tmp_path)
    assert agent_bundle.collect(current) == []
    agent_bundle.adopt(current, "e1", tmp_path)
    assert agent_bundle.collect(current) == [old.path]


def test_a_sandbox_that_vanished_without_a_word_keeps_nothing(
    current: AgentBundle, tmp_path: Path
) -> None:
    old = old_bundle(current)
    agent_bundle.use(old, "e1-a", tmp_path / "gone")
    assert agent_bundle.collect(current) == [old]


def test_a_fresh_bundle_is_left_to_the_engine_that_just_made_it(current: AgentBundle) -> None:
    fresh = current.path.with_name("fresh")
    fresh.mkdir()
    assert agent_bundle.collect(current) == []


def test_the_bundle_of_this_engine_is_never_removed(current: AgentBundle) -> None:
    os.utime(current.path, (0, 0))
    assert agent_bundle.collect(current) == []


def test_what_a_builder_that_died_left_is_removed(current: AgentBundle) -> None:
    draft = old_bundle(current, "draft-abc")
    assert agent_bundle.collect(current) == [draft]


def test_releasing_twice_is_harmless(current: AgentBundle) -> None:
    agent_bundle.release(current.path, "never-used")


def test_the_standard_library_is_taken_without_its_dead_weight() -> None:
    interpreter = Interpreter.running()
    kept = {path.relative_to(interpreter.stdlib).parts[0] for path in interpreter.modules()}
    assert {"os.py", "socket.py", "json", "encodings", "selectors.py"} <= kept
    assert not kept & {"test", "site-packages", "tkinter", "ssl.py", "asyncio", "__pycache__"}


def test_the_interpreters_own_bytecode_is_used_while_it_is_up_to_date(tmp_path: Path) -> None:
    source = tmp_path / "m.py"
    source.write_text("x = 1\n")
    status = source.stat()
    stamp = struct.pack("<III", 0, int(status.st_mtime), status.st_size)
    cached = Path(importlib.util.cache_from_source(source))
    cached.parent.mkdir()
    cached.write_bytes(importlib.util.MAGIC_NUMBER + stamp + b"its own")
    assert agent_bundle.bytecode(source).endswith(b"its own")
    os.utime(source, (0, 0))
    assert not agent_bundle.bytecode(source).endswith(b"its own")
