from pathlib import Path

import pytest

from atoll.storage.label import RootLabel, parse_label, store_key


def test_a_label_is_read_back_as_it_was_written() -> None:
    label = RootLabel("abc", "layer-1_x", 1_879_048_192, 65_536)
    assert parse_label(str(label)) == label


@pytest.mark.parametrize(
    "source",
    [
        "overlay",
        "/dev/sda1",
        "",
        "atoll",
        "atoll:a:b:1",
        "atoll:a:b:x:1",
        "atoll:a:b::",
        "x:a:b:1:2",
    ],
)
def test_other_mounts_are_no_roots_of_ours(source: str) -> None:
    assert parse_label(source) is None


def test_two_state_directories_have_different_keys() -> None:
    assert store_key(Path("/var/lib/a")) != store_key(Path("/var/lib/b"))
    assert store_key(Path("/var/lib/a")) == store_key(Path("/var/lib/a"))
