from datetime import UTC, datetime

import pytest

from atoll.errors import InvalidConfigError
from atoll.wire import cron

START = datetime(2024, 2, 10, 12, 30, 15, tzinfo=UTC)  # a Saturday


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("* * * * *", "2024-02-10 12:31"),
        ("*/30 * * * *", "2024-02-10 13:00"),
        ("45 * * * *", "2024-02-10 12:45"),
        ("0 17 * * sun", "2024-02-11 17:00"),
        ("0 17 * * 1", "2024-02-11 17:00"),
        ("10 7 * * mon-fri", "2024-02-12 07:10"),
        ("0 15 1 * *", "2024-03-01 15:00"),
        ("0 0 L * *", "2024-02-29 00:00"),
        ("59 23 LW * *", "2024-02-29 23:59"),
        ("0 18 * * 6L", "2024-02-23 18:00"),
        ("0 0 29 2 *", "2024-02-29 00:00"),
        ("0 9 ? 3 2#1", "2024-03-04 09:00"),
        ("0 0 17W * *", "2024-02-16 00:00"),
        ("0 0 18W * *", "2024-02-19 00:00"),
        ("0 0 1W 6 *", "2024-06-03 00:00"),
        ("0 0 30W 6 *", "2024-06-28 00:00"),
        ("5,10-12 0 * jan *", "2025-01-01 00:05"),
        ("0 12/4 * * *", "2024-02-10 16:00"),
        ("0 0 13 * fri", "2024-02-13 00:00"),
        ("0 0 * * L", "2024-02-17 00:00"),
    ],
)
def test_the_next_time_is_the_platforms(text: str, want: str) -> None:
    found = cron.parse(text).after(START)
    assert found
    assert f"{found:%Y-%m-%d %H:%M}" == want


@pytest.mark.parametrize(
    "text",
    ["", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8",
     "* * * * 0", "5-1 * * * *", "*/0 * * * *", "x * * * *", "0 0 30 2 *", "0 0 31W 2 *", "0 0 * * 2#6",
     "+5 * * * *", "٣ * * * *"],
)  # fmt: skip
def test_what_is_no_expression_or_never_matches_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfigError):
        cron.parse(text)


def test_a_cron_without_a_match_within_reach_has_no_next_time() -> None:
    never = cron.parse("* * * * *")._replace(months=frozenset())
    assert never.after(START) is None
