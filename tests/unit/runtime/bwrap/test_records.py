from pathlib import Path

from atoll.runtime.bwrap.records import Record, Records


def records(tmp_path: Path) -> Records:
    found = Records(tmp_path / "bwrap")
    found.open()
    return found


def test_a_record_is_there_from_its_first_write_until_it_is_dropped(tmp_path: Path) -> None:
    kept = records(tmp_path)
    assert (kept.read("a"), kept.list()) == (None, [])
    kept.write("a", Record(run_dir="/r", pid=7, identity="x", group="/g"))
    kept.write("b", Record())
    assert kept.list() == ["a", "b"]
    assert kept.read("a") == Record(run_dir="/r", pid=7, identity="x", group="/g")
    kept.drop("a")
    kept.drop("a")
    assert kept.list() == ["b"]


def test_a_write_that_was_not_finished_is_not_seen(tmp_path: Path) -> None:
    kept = records(tmp_path)
    kept.write("a", Record(pid=1))
    (tmp_path / "bwrap/a.new").write_bytes(b"{")
    assert (kept.list(), kept.read("a")) == (["a"], Record(pid=1))


def test_a_record_that_lost_its_content_keeps_no_engine_from_starting(tmp_path: Path) -> None:
    """Its name may be on the disk without it, after a power cut: no process has outlived that."""
    kept = records(tmp_path)
    for left in (b"", b"\0" * 20, b'{"pid": "x"}'):
        (tmp_path / "bwrap/a").write_bytes(left)
        assert (kept.list(), kept.read("a")) == (["a"], Record())
