import json

import pytest

from atoll.agent.files.rooms import ANSWER_BYTES, Room


def test_as_many_entries_fit_as_were_asked_for() -> None:
    room = Room(2, overhead=10)
    room.take("a")
    assert not room.is_full
    room.take("b")
    assert room.is_full


@pytest.mark.parametrize("char", ["a", "\1", "é", "\U0001f600", '"', "\uefff"])
def test_texts_count_as_json_writes_them(char: str) -> None:
    room, written = Room(10**9, overhead=2), 0
    while not room.is_full:
        room.take(char * 10_000)
        written += len(json.dumps(char * 10_000)) + 2
    assert ANSWER_BYTES <= written < ANSWER_BYTES + 200_000
