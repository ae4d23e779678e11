import os
from pathlib import Path

import pytest

from atoll.network.gateway import log
from atoll.network.gateway.log import Log
from atoll.network.gateway.protocol import Decision

ONE = Decision(time=1.0, protocol="tcp", verdict="allowed", rule="r", host="a.test")


def test_what_was_written_is_read(tmp_path: Path) -> None:
    written = Log(tmp_path, "box")
    written.write(ONE)
    written.close()
    assert list(log.read(tmp_path, "box")) == [ONE]
    log.remove(tmp_path, "box")
    assert list(log.read(tmp_path, "box")) == []


def test_a_flood_is_cut_and_the_next_line_says_by_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    written = Log(tmp_path, "box")
    for _ in range(log.BURST + 7):
        written.write(ONE)
    now += 1
    written.write(ONE)
    written.close()
    found = list(log.read(tmp_path, "box"))
    assert len(found) == log.BURST + 1
    assert found[-1].dropped == 7


def test_a_log_has_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "MAX_BYTES", 1_000)
    written = Log(tmp_path, "box")
    for _ in range(200):
        written.write(ONE)
    written.close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2_000
    assert len(list(log.read(tmp_path, "box"))) > 5


@pytest.mark.parametrize("name", ["", "../a", "a/b", "a.b", "a" * 200])
def test_a_name_is_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="no name"):
        Log(tmp_path, name)


def test_a_reader_follows_no_link_and_waits_for_nothing(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b'{"time":1,"protocol":"x","verdict":"v","rule":"r"}\n')
    older, newer = log.files(tmp_path, "box")
    older.symlink_to(secret)
    os.mkfifo(newer)
    assert list(log.read(tmp_path, "box")) == []


def test_lines_of_others_are_left_out(tmp_path: Path) -> None:
    log.files(tmp_path, "box")[1].write_bytes(b'nonsense\n{"time":"x"}\n\xff\n')
    assert list(log.read(tmp_path, "box")) == []


def test_a_line_has_a_length(tmp_path: Path) -> None:
    written = Log(tmp_path, "box")
    written.write(Decision(time=1, protocol="http", verdict="refused", rule="r" * 9_000, host="a"))
    written.close()
    assert log.files(tmp_path, "box")[1].stat().st_size < log.MAX_LINE
