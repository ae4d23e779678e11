from pathlib import Path

import pytest

from atoll.host.mounts import (
    MountEntry,
    holding_mount,
    mount_at,
    mounts_below,
    parse_mountinfo,
)

TABLE = rb"""27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
40 27 0:30 / /run rw,nosuid shared:5 master:2 - tmpfs tmpfs rw
50 40 0:51 / /run/atoll/roots/a/x/rootfs rw,nosuid,nodev - overlay atoll:a:l:0:1 rw,lowerdir=/proc/self/fd/7/0
51 40 7:0 / /srv/with\040space\134and\011tab rw - btrfs /dev/loop0 rw
52 51 7:0 / /srv/with\040space\134and\011tab/deep rw - btrfs /dev/loop1 rw
53 51 7:0 / /srv/with\040space\134and\011tab/deep ro - tmpfs none ro
"""


@pytest.fixture
def table() -> list[MountEntry]:
    return parse_mountinfo(TABLE)


def test_an_entry_has_its_target_source_type_and_options(table: list[MountEntry]) -> None:
    entry = table[2]
    assert entry.target == Path("/run/atoll/roots/a/x/rootfs")
    assert (entry.source, entry.fstype) == ("atoll:a:l:0:1", "overlay")
    assert {"nosuid", "nodev"} <= entry.options


def test_escaped_characters_in_a_path_are_decoded(table: list[MountEntry]) -> None:
    assert table[3].target == Path("/srv/with space\\and\ttab")


def test_shared_and_private_mounts_are_told_apart(table: list[MountEntry]) -> None:
    assert [m.shared for m in table[:4]] == [True, True, False, False]


def test_mounts_below_a_folder_come_in_the_order_to_unmount_them(table: list[MountEntry]) -> None:
    below = mounts_below(Path("/srv"), table)
    assert [m.source for m in below] == ["none", "/dev/loop1", "/dev/loop0"]


def test_a_folder_is_not_below_one_whose_name_it_extends(table: list[MountEntry]) -> None:
    assert not mounts_below(Path("/run/atoll/roots/a/x/root"), table)


def test_the_last_mount_at_a_target_is_the_one_in_force(table: list[MountEntry]) -> None:
    top = mount_at(table[4].target, table)
    assert top is not None
    assert top.source == "none"
    assert mount_at(Path("/nowhere"), table) is None


def test_the_nearest_mount_holds_a_path(table: list[MountEntry]) -> None:
    assert holding_mount(Path("/run/user"), table).target == Path("/run")
    assert holding_mount(Path("/running"), table).target == Path("/")
    assert holding_mount(table[5].target / "x", table).source == "none"


def test_a_table_without_a_root_holds_nothing() -> None:
    with pytest.raises(LookupError):
        holding_mount(Path("/x"), [])
