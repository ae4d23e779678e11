"""States that are copies on one file system, as an engine without root makes them."""

import os
import subprocess
from pathlib import Path

from atoll.storage.diff import changes


def copied(before: Path) -> Path:
    now = before.with_name("now")
    subprocess.run(["cp", "-a", before, now], check=True)
    return now


def test_a_copy_that_nobody_changed_has_no_changes(tmp_path: Path) -> None:
    before = tmp_path / "before"
    before.mkdir()
    (before / "file").write_text("same")
    (before / "link").symlink_to("file")
    assert list(changes(before, copied(before), [])) == []


def test_a_change_shows_whatever_its_size_and_time(tmp_path: Path) -> None:
    """Root inside can set times."""
    before = tmp_path / "before"
    before.mkdir()
    for name in ("one", "two"):
        (before / name).write_text("same")
    (before / "link").symlink_to("one")
    now = copied(before)
    times = (now / "one").stat().st_mtime_ns
    (now / "one").write_text("diff")
    os.utime(now / "one", ns=(times, times))
    (now / "link").unlink()
    (now / "link").symlink_to("two")
    assert [(c.path, c.kind) for c in changes(before, now, [])] == [
        ("/link", "modified"),
        ("/one", "modified"),
    ]
