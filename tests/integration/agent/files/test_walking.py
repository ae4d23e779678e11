import os
from pathlib import Path

import pytest

from atoll.agent.files.walking import opened, walk


def _relatives(path: Path, **options: object) -> list[bytes]:
    with opened(os.fsencode(path)) as top:
        return [item.relative for item in walk(top, **options)]  # type: ignore[arg-type]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for number in range(30):
        (tmp_path / f"d{number % 3}/e{number % 5}").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"d{number % 3}/e{number % 5}/f{number}").touch()
    return tmp_path


@pytest.mark.parametrize("batch", [1, 2, 3, 1000])
def test_the_order_does_not_depend_on_how_many_names_are_held(tree: Path, batch: int) -> None:
    assert _relatives(tree, batch=batch) == _relatives(tree)


def test_a_walk_goes_on_behind_every_entry(tree: Path) -> None:
    everything = _relatives(tree)
    for position, relative in enumerate(everything):
        rest = _relatives(tree, after=relative.split(b"/"))
        assert rest == everything[position + 1 :]


def test_what_is_not_accepted_is_not_entered(tree: Path) -> None:
    found = _relatives(tree, accept=lambda name, _relative, _directory: name != b"d1")
    assert found
    assert not any(relative.startswith(b"d1") for relative in found)


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/")
    assert _relatives(tmp_path) == [b"link"]


def test_a_tree_deeper_than_a_path_may_be_long_is_walked(tmp_path: Path) -> None:
    depth = 600
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d" * 20, dir_fd=here)
        below = os.open("d" * 20, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    assert len(_relatives(tmp_path)) == depth


def test_no_descriptor_is_left(tree: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with opened(os.fsencode(tree)) as top:
        items = walk(top)
        for _ in range(5):
            next(items)
        items.close()  # type: ignore[attr-defined]
    assert len(os.listdir("/proc/self/fd")) == before
