import asyncio
from pathlib import Path

import pytest

from atoll.engine.egress import direct
from atoll.engine.egress.direct import DirectLog
from atoll.network.gateway import log
from atoll.network.gateway.protocol import Decision

ONE = Decision(time=1, protocol="tcp", verdict="allowed", rule="enable_internet", port=80)


async def test_lines_go_to_the_log_of_who_has_the_address(tmp_path: Path) -> None:
    logs = DirectLog(tmp_path / "direct")
    logs.know("r1", ("10.0.0.2", "fd00::2"), "one")
    logs.know("r2", ("10.0.0.6",), "two")
    for source in ("10.0.0.2", "fd00::2", "10.0.0.6", "10.0.0.9"):
        logs.tell(source, ONE)
    await logs.close()
    assert [len(list(log.read(logs.folder, name))) for name in ("one", "two")] == [2, 1]


async def test_an_address_is_nobodys_soon_after_its_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections end with it, and are told then."""
    monkeypatch.setattr(direct, "GRACE", 0.02)
    logs = DirectLog(tmp_path / "direct")
    logs.know("r1", ("10.0.0.2",), "one")
    logs.know("r2", ("10.0.0.6",), "two")
    for host_ref in ("r1", "r1", "r2"):
        logs.forget(host_ref)
    logs.tell("10.0.0.2", ONE)
    logs.know("r3", ("10.0.0.6",), "three")
    await asyncio.sleep(0.1)
    for source in ("10.0.0.2", "10.0.0.6"):
        logs.tell(source, ONE)
    await logs.close()
    names = ("one", "two", "three")
    assert [len(list(log.read(logs.folder, name))) for name in names] == [1, 0, 1]


async def test_what_is_removed_does_not_come_back(tmp_path: Path) -> None:
    logs = DirectLog(tmp_path / "direct")
    logs.know("r1", ("10.0.0.2",), "one")
    logs.tell("10.0.0.2", ONE)
    logs.forget("r1")
    await logs.remove("one")
    logs.tell("10.0.0.2", ONE)
    await logs.close()
    assert not list(log.read(logs.folder, "one"))


async def test_files_and_lines_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "MAX_OPEN", 3)
    monkeypatch.setattr(direct, "MAX_WAITING", 20)
    logs = DirectLog(tmp_path / "direct")
    for n in range(30):
        logs.know(f"r{n}", (f"10.0.0.{n}",), f"log{n}")
        logs.tell(f"10.0.0.{n}", ONE)
    await logs.settle()
    assert len(logs._logs) == 3
    assert len(list(logs.folder.iterdir())) == 20
    await logs.close()


async def test_a_disk_that_refuses_loses_lines_only(tmp_path: Path) -> None:
    logs = DirectLog(tmp_path / "direct")
    (tmp_path / "direct").mkdir()
    log.files(logs.folder, "one")[1].mkdir()
    logs.know("r1", ("10.0.0.2",), "one")
    logs.tell("10.0.0.2", ONE)
    await logs.close()
