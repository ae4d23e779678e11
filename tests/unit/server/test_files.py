import pytest

from atoll.errors import RangeNotSatisfiableError
from atoll.server.files import Part, header_of, parse_range, within
from atoll.wire import ops


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-9", Part(0, 10)),
        ("bytes=5-", Part(5)),
        ("bytes=-3", Part(-3)),
        (" bytes=1-1 ", Part(1, 1)),
        (None, None),
        ("", None),
        ("bytes=-", None),
        ("bytes=5-1", None),
        ("bytes=0-1,3-4", None),
        ("lines=0-1", None),
        ("bytes=a-b", None),
        ("bytes=\u00b2-", None),
        ("bytes=" + "9" * 5_000 + "-", Part(10**18)),
        ("bytes=-" + "9" * 5_000, Part(-(10**18))),
        ("bytes=0-" + "9" * 5_000, Part(0, 10**18 + 1)),
        ("bytes=" + "0" * 5_000 + "7-", Part(7)),
    ],
)
def test_one_range_is_understood_and_others_mean_the_whole(
    header: str | None, expected: Part | None
) -> None:
    assert parse_range(header) == expected


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (Part(0, 10), Part(0, 4)),
        (Part(1), Part(1, 3)),
        (Part(-3), Part(1, 3)),
        (Part(-10), Part(0, 4)),
        (Part(3, 1), Part(3, 1)),
    ],
)
def test_ranges_are_cut_at_the_end_of_the_file(part: Part, expected: Part) -> None:
    assert within(part, 4) == expected


@pytest.mark.parametrize(
    ("part", "size"), [(Part(4), 4), (Part(9, 1), 4), (Part(0, 1), 0), (Part(-0, 0), 4)]
)
def test_ranges_outside_are_refused(part: Part, size: int) -> None:
    with pytest.raises(RangeNotSatisfiableError) as caught:
        within(part, size)
    assert caught.value.context == {"size": size}


def test_the_agent_gets_the_fields_in_snake_case() -> None:
    header = header_of(ops.LIST_FILES, ops.LIST_FILES.request(path="/x", include_hidden=True))
    assert header["op"] == "fs.list_files"
    assert header["include_hidden"] is True
    assert header["cursor"] is None
