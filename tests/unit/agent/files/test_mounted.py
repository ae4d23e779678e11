import os

from atoll.agent.files import mounted

TABLE = rb"""1 0 0:1 / / rw - overlay none rw
2 1 0:2 / /data rw - tmpfs none rw
3 1 0:3 / /workspace/a\040b rw - tmpfs none rw
4 1 0:4 / /workspace/a\040b/c rw - tmpfs none rw
5 1 0:5 / /workspace2 rw - tmpfs none rw
"""


def test_mounts_are_told_relative_to_the_tree() -> None:
    assert mounted.relative(b"/workspace", TABLE) == {b"a b", b"a b/c"}
    assert mounted.relative(b"/data", TABLE) == set()
    assert b"workspace2" in mounted.relative(b"/", TABLE)


def test_a_path_is_on_the_mount_with_the_longest_name_and_the_last_of_equal_ones() -> None:
    table = TABLE + b"6 5 0:6 / /workspace2 rw shared:1 - btrfs none rw\n"
    for path, kind in (
        (b"/", b"overlay"),
        (b"/workspace/a", b"overlay"),
        (b"/workspace/a b/d", b"tmpfs"),
        (b"/data", b"tmpfs"),
        (b"/data2/x", b"overlay"),
        (b"/workspace2/x", b"btrfs"),
    ):
        assert mounted.type_at(path, table) == kind, path
    assert mounted.type_at(b"/x", b"") == b""


def test_a_tree_of_this_process_is_looked_up() -> None:
    root = os.open("/", os.O_PATH)
    assert b"proc" in (mounted.below(root) or set())
    os.close(root)
    assert mounted.below(root) is None
