import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atoll import errors
from atoll.wire.files import WatchEvent
from atoll.wire.frames import Kind
from integration.agent.files_calls import Call, write


class Watch:
    """A watch that has begun; `until` reads its events."""

    def __init__(self, path: Path, **fields: Any) -> None:
        self.path = path
        self.call = Call("watch", path=str(path), **fields)
        self._events = self.call.events()
        self.first = self._next()

    def _next(self) -> WatchEvent:
        return msgspec.convert(next(self._events), WatchEvent)

    def until(self, type: str, name: str) -> list[tuple[str, str]]:
        """Return the events up to this one, which must come."""
        seen: list[tuple[str, str]] = []
        while not seen or seen[-1] != (type, name):
            event = self._next()
            seen.append((event.type, os.path.relpath(event.path, self.path)))
        return seen


@contextmanager
def watching(path: Path, **fields: Any) -> Iterator[Watch]:
    watch = Watch(path, **fields)
    try:
        yield watch
    finally:
        watch.call.finish()


def test_a_watch_says_when_it_has_begun(tmp_path: Path) -> None:
    with watching(tmp_path, id="w1") as watch:
        assert watch.first.type == "watching"
        assert (watch.first.path, watch.first.watch_id) == (str(tmp_path), "w1")


def test_changes_come_in_order(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        (tmp_path / "f").write_text("x")
        (tmp_path / "f").chmod(0o600)
        (tmp_path / "f").rename(tmp_path / "g")
        (tmp_path / "g").unlink()
        assert watch.until("delete", "g") == [
            ("create", "f"),
            ("modify", "f"),
            ("attrib", "f"),
            ("move_from", "f"),
            ("move_to", "g"),
            ("delete", "g"),
        ]


def test_new_directories_are_watched_and_told_completely_once(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        names = []
        for number in range(20):
            (tmp_path / f"d{number}/e/g").mkdir(parents=True)
            (tmp_path / f"d{number}/e/g/f").touch()
            names += [f"d{number}", f"d{number}/e", f"d{number}/e/g", f"d{number}/e/g/f"]
        (tmp_path / "last").touch()
        created = [name for type, name in watch.until("create", "last") if type == "create"]
        assert sorted(created) == sorted([*names, "last"])
        (tmp_path / "d7/e/g/later").touch()
        assert watch.until("create", "d7/e/g/later")


def test_a_moved_directory_is_told_by_its_new_path(tmp_path: Path) -> None:
    (tmp_path / "a/deep").mkdir(parents=True)
    with watching(tmp_path) as watch:
        (tmp_path / "a").rename(tmp_path / "b")
        (tmp_path / "b/deep/f").touch()
        assert watch.until("create", "b/deep/f") == [
            ("move_from", "a"),
            ("move_to", "b"),
            ("create", "b/deep/f"),
        ]


def test_a_directory_that_leaves_is_not_watched_any_more(tmp_path: Path) -> None:
    (tmp_path / "top/a").mkdir(parents=True)
    with watching(tmp_path / "top") as watch:
        (tmp_path / "top/a").rename(tmp_path / "outside")
        watch.until("move_from", "a")
        import time

        time.sleep(0.4)  # longer than the second half of a move may take
        (tmp_path / "outside/f").touch()
        (tmp_path / "top/end").touch()
        assert watch.until("create", "end")[0] == ("create", "end")


def _after(events: list[tuple[str, str]]) -> set[str]:
    """Return what is there according to the events."""
    there: set[str] = set()
    for type, name in events:
        if type in {"delete", "move_from"}:
            there = {one for one in there if one != name and not one.startswith(f"{name}/")}
        elif type in {"create", "move_to"}:
            there.add(name)
    return there


def test_a_tree_that_goes_and_comes_again_is_told_as_it_is_in_the_end(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        for _ in range(5):
            for _ in range(3):
                (tmp_path / "a/b").mkdir(parents=True)
                shutil.rmtree(tmp_path / "a")
            (tmp_path / "a").mkdir()
            (tmp_path / "a/f").touch()
            (tmp_path / "end").touch()
            assert _after(watch.until("create", "end")) == {"a", "a/f", "end"}
            shutil.rmtree(tmp_path / "a")
            (tmp_path / "end").unlink()
            watch.until("delete", "end")


def test_writes_of_the_file_api_are_one_event(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        write(tmp_path / "f", b"new", mode=0o777)
        write(tmp_path / "f", b"replaced")
        write(tmp_path / "end", b"")
        assert watch.until("create", "end") == [
            ("create", "f"),
            ("modify", "f"),
            ("create", "end"),
        ]


def test_excluded_names_are_not_reported(tmp_path: Path) -> None:
    (tmp_path / "node_modules").mkdir()
    with watching(tmp_path) as watch:
        (tmp_path / "node_modules/x").touch()
        (tmp_path / ".git").mkdir()
        (tmp_path / "f").touch()
        assert watch.until("create", "f") == [("create", "f")]


def test_only_included_names_are_reported(tmp_path: Path) -> None:
    with watching(tmp_path, include=["*.py"]) as watch:
        (tmp_path / "d").mkdir()
        (tmp_path / "d/a.txt").touch()
        (tmp_path / "d/a.py").touch()
        assert watch.until("create", "d/a.py") == [("create", "d/a.py")]


def test_without_recursive_only_the_directory_itself_counts(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    with watching(tmp_path, recursive=False) as watch:
        (tmp_path / "d/f").touch()
        (tmp_path / "g").touch()
        assert watch.until("create", "g") == [("create", "g")]


def test_one_file_is_watched_through_its_replacements(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with watching(tmp_path / "f") as watch:
        (tmp_path / "other").touch()
        write(tmp_path / "f", b"1")
        write(tmp_path / "f", b"2")
        (tmp_path / "f").unlink()
        events = watch.until("delete", ".")
        assert {name for _, name in events} == {"."}
        assert [type for type, _ in events] == ["modify", "modify", "delete"]


def test_cancel_stops_the_watch_with_an_event(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    watch.call.send(Kind.CANCEL)
    frames = list(watch.call.frames())
    watch.call.finish()
    assert [frame.kind for frame in frames] == [Kind.EVENT, Kind.END]
    stopped = json.loads(frames[0].payload)
    assert (stopped["type"], stopped["reason"]) == ("stopped", "cancelled")


def test_a_watch_ends_with_its_directory(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    with watching(tmp_path / "d") as watch:
        (tmp_path / "d").rmdir()
        assert watch.until("stopped", ".")


def test_an_overflow_is_told_and_the_watch_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue_length = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if queue_length > 20_000:
        pytest.skip("the queue of this host is too long for a short test")
    with watching(tmp_path) as watch:
        os.kill(watch.call.pid, 19)  # SIGSTOP: a watch that does not keep up
        for number in range(queue_length + 10):
            os.mknod(tmp_path / f"{number}")
        (tmp_path / "d").mkdir()
        os.kill(watch.call.pid, 18)
        watch.until("overflow", ".")
        (tmp_path / "d/f").touch()
        assert watch.until("create", "d/f")


def test_heartbeats_show_that_a_silent_watch_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atoll.agent.files.watching.HEARTBEAT_INTERVAL", 0.05)
    watch = Watch(tmp_path)
    assert next(watch.call.frames()).kind == Kind.HEARTBEAT
    watch.call.finish()


def test_a_missing_path_is_typed(tmp_path: Path) -> None:
    with pytest.raises(errors.FileNotFoundError):
        Call("watch", path=str(tmp_path / "nope")).answer()
    with pytest.raises(errors.ValidationFailedError):
        Call("watch", path=str(tmp_path), include=["a"], exclude=["b"]).answer()
