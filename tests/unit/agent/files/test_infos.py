import os
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from atoll.agent.files.infos import Describer, describe_entry, etag, timestamp, type_of
from atoll.wire.files import FileInfo


@pytest.mark.parametrize("nanoseconds", [0, -1, 1_700_000_000_123_456_789, -(10**21), 10**21])
def test_every_time_a_file_can_claim_is_a_timestamp_of_the_wire(nanoseconds: int) -> None:
    msgspec.convert(timestamp(nanoseconds), datetime)


def test_timestamps_are_exact_to_the_microsecond() -> None:
    moment = datetime(2026, 2, 3, 4, 5, 6, 789_012, tzinfo=UTC)
    assert msgspec.convert(timestamp(1_770_091_506_789_012_345), datetime) == moment


def test_a_description_is_a_file_info(tmp_path: os.PathLike[str]) -> None:
    path = os.fsencode(tmp_path) + b"/link"
    os.symlink(b"nowhere/\xff", path)
    info = msgspec.convert(describe_entry(Describer(), None, path, path, b"link"), FileInfo)
    assert (info.type, info.target, info.relative_path) == ("symlink", "nowhere/\uefff", "link")
    assert info.name == "link"
    assert len(info.permissions) == 9


def test_an_id_without_a_name_is_told_as_a_number() -> None:
    seen = SimpleNamespace(st_mode=0o100644, st_size=0, st_mtime_ns=0, st_uid=54_321, st_gid=54_321)
    info = Describer().describe(b"/f", cast("os.stat_result", seen))
    assert (info["owner"], info["group"]) == ("54321", "54321")


def test_the_root_has_a_name() -> None:
    assert Describer().describe(b"/", os.stat("/"))["name"] == "/"


def test_types_are_in_the_words_of_the_wire() -> None:
    assert type_of(os.stat("/dev/null").st_mode) == "other"
    assert type_of(os.stat("/").st_mode) == "directory"


def test_an_etag_is_quoted_ascii() -> None:
    assert etag(os.stat("/")).startswith('"')
