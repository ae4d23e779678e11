import struct

from atoll.agent.files.inotify import Event, Tree, parse


def _raw(watch: int, mask: int, cookie: int, name: bytes) -> bytes:
    padded = name + bytes(16 - len(name) % 16) if name else b""
    return struct.pack("iIII", watch, mask, cookie, len(padded)) + padded


def test_events_are_read_in_order_with_their_names() -> None:
    data = _raw(1, 2, 0, b"") + _raw(3, 4, 5, b"a b\n")
    assert list(parse(data)) == [Event(1, 2, 0, b""), Event(3, 4, 5, b"a b\n")]


def _tree() -> Tree:
    tree = Tree()
    tree.add(1, 0, b"")
    tree.add(2, 1, b"a")
    tree.add(3, 2, b"b")
    return tree


def test_a_path_is_made_of_the_names_above() -> None:
    tree = _tree()
    assert tree.path(3) == b"a/b"
    assert tree.path(1) == b""


def test_a_moved_directory_takes_what_is_in_it_along() -> None:
    tree = _tree()
    tree.add(2, 1, b"z")
    assert tree.path(3) == b"z/b"
    assert tree.child(1, b"a") is None
    assert tree.child(1, b"z") == 2


def test_a_forgotten_directory_takes_what_is_in_it_along() -> None:
    tree = _tree()
    assert sorted(tree.discard(2)) == [2, 3]
    assert 3 not in tree
    assert tree.child(1, b"a") is None
    assert tree.discard(2) == []


def test_a_name_that_is_taken_over_stays_with_the_newcomer() -> None:
    tree = _tree()
    tree.add(9, 1, b"a")  # the old directory was deleted, its IGNORED event comes later
    tree.discard(2)
    assert tree.child(1, b"a") == 9
