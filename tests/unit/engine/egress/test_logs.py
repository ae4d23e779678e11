from pathlib import Path

import pytest

from atoll.engine.egress.logs import LogReader
from atoll.errors import ValidationFailedError
from atoll.network.gateway import log
from atoll.network.gateway.protocol import Decision


def write(folder: Path, *times: float, host: str = "") -> None:
    folder.mkdir(exist_ok=True)
    writer = log.Log(folder, "box")
    for time in times:
        writer.write(
            Decision(time=time, protocol="dns", verdict="allowed", rule="r", host=host, ms=1)
        )
    writer.close()


def reader(tmp_path: Path, after: str = "") -> LogReader:
    return LogReader({"d": tmp_path / "d", "g": tmp_path / "g"}, "box", after)


def times(found: LogReader) -> list[float]:
    return [event.time for event in found.read()]


def test_both_logs_are_read_as_one(tmp_path: Path) -> None:
    write(tmp_path / "g", 1, 4, 5)
    write(tmp_path / "d", 2, 3, 6)
    assert times(reader(tmp_path)) == [1, 2, 3, 4, 5, 6]


def test_reading_goes_on_after_any_event_without_a_gap_or_a_repeat(tmp_path: Path) -> None:
    write(tmp_path / "g", 1, 4, 5)
    write(tmp_path / "d", 2, 3, 6)
    for event in list(reader(tmp_path).read()):
        rest = [time for time in (1, 2, 3, 4, 5, 6) if time > event.time]
        assert times(reader(tmp_path, event.cursor)) == rest


def test_a_log_that_grows_is_followed_also_into_a_new_file(tmp_path: Path) -> None:
    write(tmp_path / "g", 1)
    following = reader(tmp_path)
    assert times(following) == [1]
    assert times(following) == []
    write(tmp_path / "g", 2)
    older, newer = log.files(tmp_path / "g", "box")
    newer.replace(older)
    write(tmp_path / "g", 3)
    assert times(following) == [2, 3]


def test_a_cursor_of_a_file_that_is_gone_begins_anew(tmp_path: Path) -> None:
    write(tmp_path / "g", 1)
    (event,) = reader(tmp_path).read()
    log.files(tmp_path / "g", "box")[1].write_bytes(b"")
    log.remove(tmp_path / "g", "box")
    (tmp_path / "g" / "other").touch()  # takes the inode that became free
    write(tmp_path / "g", 2)
    assert times(reader(tmp_path, event.cursor)) == [2]


def test_what_is_no_line_is_left_out(tmp_path: Path) -> None:
    """The gateway, which is not trusted, writes the file."""
    write(tmp_path / "g", 1)
    path = log.files(tmp_path / "g", "box")[1]
    with path.open("ab") as file:
        file.write(b'\xff\n{"time": "x"}\n[]\n')
    write(tmp_path / "g", 2)
    with path.open("ab") as file:
        file.write(b'{"time": 3, "prot')
    assert times(reader(tmp_path)) == [1, 2]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "x", 1)
    (tmp_path / "g").mkdir()
    log.files(tmp_path / "g", "box")[1].symlink_to(log.files(tmp_path / "x", "box")[1])
    assert times(reader(tmp_path)) == []


@pytest.mark.parametrize("cursor", ["x", "g1", "g1-", "G1-2", "g1-2.", "g-1-2", "g1-2;d", "g" * 99])
def test_what_is_no_cursor_is_refused(tmp_path: Path, cursor: str) -> None:
    with pytest.raises(ValidationFailedError):
        reader(tmp_path, cursor)
