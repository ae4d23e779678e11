from pathlib import Path

from atoll.storage.intents import Intents


def test_a_note_is_there_until_it_is_dropped(tmp_path: Path) -> None:
    first, second = (Intents(tmp_path / "notes") for _ in range(2))
    first.open()
    first.add("a")
    first.add("a")
    first.add("b")
    second.open()
    assert second.ids() == {"a", "b"}
    second.drop("a")
    second.drop("a")
    assert first.ids() == {"b"}
    assert (tmp_path / "notes").stat().st_mode & 0o777 == 0o700
