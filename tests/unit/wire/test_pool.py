from atoll.wire.pool import PoolStats


def test_durations_are_milliseconds_by_their_plain_name() -> None:
    stats = PoolStats(
        warm=1,
        making=0,
        assigned=2,
        total=3,
        taken=4,
        missed=5,
        max_warm=6,
        refresh_interval_ms=7_000,
        kinds=[],
    )
    assert stats.to_dict()["refreshInterval"] == 7_000
