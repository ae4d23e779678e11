"""What is read of the tunnel's program, and what is kept of what it says."""

from pathlib import Path

import pytest

from atoll.engine.ports import cloudflared


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("INF |  https://a-b-c.trycloudflare.com  |", "https://a-b-c.trycloudflare.com"),
        ("INF Added CNAME app.example.com which will route", "https://app.example.com"),
        ("INF Requesting new quick Tunnel on trycloudflare.com...", None),
        ("ERR see https://developers.cloudflare.com/x", None),
    ],
)
def test_the_address_is_read_from_what_the_program_says(line: str, found: str | None) -> None:
    assert cloudflared.address(line) == found


def test_what_visitors_make_the_program_say_does_not_fill_the_disk(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("ab") as program:
        program.write(b"x" * (cloudflared.MAX_LOG + 1))
        program.flush()
        cloudflared.shorten(log)
        assert log.stat().st_size == 0
        program.write(b"next\n")
    assert cloudflared.said(log) == ["next"]


def test_a_log_within_its_bounds_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"a\n" * 100)
    cloudflared.shorten(log)
    assert len(cloudflared.said(log)) == 20
    cloudflared.shorten(tmp_path / "none")
    assert cloudflared.said(tmp_path / "none") == []
