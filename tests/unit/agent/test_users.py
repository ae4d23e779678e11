import os
from pathlib import Path

import pytest

from atoll import errors
from atoll.agent.users import User, lookup, read_text

PASSWD = """root:x:0:0:root:/root:/bin/bash
# a comment
broken:x:12
huge:x:99999999999999999999:1::/:
dev:x:1000:1001:Dev,,,:/home/dev:/bin/zsh
+nis
"""
GROUP = """root:x:0:
wheel:x:10:dev,other
dev:x:1001:
docker:x:999:other
video:x:44:dev
bad:x:y:dev
"""


def test_a_name_has_its_ids_groups_home_and_shell() -> None:
    assert lookup("dev", PASSWD, GROUP) == User(
        1000, 1001, (10, 44, 1001), "dev", "/home/dev", "/bin/zsh"
    )


def test_a_number_that_is_known_is_that_user() -> None:
    assert lookup("1000", PASSWD, GROUP) == lookup("dev", PASSWD, GROUP)


def test_a_number_that_is_unknown_has_group_0_and_no_home() -> None:
    assert lookup("4242", PASSWD, GROUP) == User(4242, 0, (0,), "4242", "/", "")


def test_an_explicit_group_replaces_all_others() -> None:
    assert lookup("dev:docker", PASSWD, GROUP)[:3] == (1000, 999, (999,))
    assert lookup("0:7", PASSWD, GROUP)[:3] == (0, 7, (7,))


@pytest.mark.parametrize(
    "user", ["nobody-here", "", ":0", "dev:nogroup", "4294967295", "0:", "-1", "²"]
)
def test_what_is_unknown_or_out_of_range_is_a_typed_error(user: str) -> None:
    with pytest.raises(errors.ValidationFailedError):
        lookup(user, PASSWD, GROUP)


def test_an_image_without_the_files_still_has_root() -> None:
    assert lookup("0:0", "", "") == User(0, 0, (0,), "0", "/", "")


def test_a_name_with_a_hostile_number_of_groups_is_cut() -> None:
    group = "\n".join(f"g{n}:x:{n}:dev" for n in range(5000))
    assert len(lookup("dev", PASSWD, group).groups) == 1024


def test_a_pipe_in_the_files_place_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "passwd")
    assert read_text(str(tmp_path / "passwd")) == ""
    assert read_text(str(tmp_path)) == ""
    assert read_text(str(tmp_path / "missing")) == ""


def test_only_a_megabyte_is_read(tmp_path: Path) -> None:
    (tmp_path / "passwd").write_bytes(b"\xff" * (3 << 20))
    assert len(read_text(str(tmp_path / "passwd"))) == 1 << 20
