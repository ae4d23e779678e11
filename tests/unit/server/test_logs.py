import errno
import io
import json
from collections.abc import Iterator

import pytest
import structlog

from atoll.server import logs


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def test_json_lines_carry_level_time_and_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    log = structlog.get_logger()
    log.debug("hidden")
    try:
        raise ValueError("why")
    except ValueError as error:
        log.error("shown", exc_info=error, request_id="r1")
    (line,) = capsys.readouterr().err.splitlines()
    entry = json.loads(line)
    assert (entry["event"], entry["level"], entry["request_id"]) == ("shown", "error", "r1")
    assert "ValueError: why" in entry["exception"]


def test_people_get_lines(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("debug", "pretty")
    structlog.get_logger().debug("shown", sandbox="box")
    assert "sandbox=box" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["pretty", "json"])
def test_a_traceback_shows_no_values(capsys: pytest.CaptureFixture[str], form: str) -> None:
    """Frames hold keys, environments and input of callers."""
    logs.configure("info", form)
    value = chr(122) * 9  # not to be found in the lines of code that a traceback shows

    def fail(env: dict[str, str]) -> None:
        secret = env["TOKEN"] + "-key"
        raise ValueError(len(secret))

    try:
        fail({"TOKEN": value})
    except ValueError as error:
        structlog.get_logger().error("shown", exc_info=error)
    shown = capsys.readouterr().err
    assert "in fail" in shown
    assert value not in shown


class Full(io.StringIO):
    """A file on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_line_that_cannot_be_written_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log may lie on the very disk that is full."""
    monkeypatch.setattr("sys.stderr", Full())
    logs.configure("info", "json")
    structlog.get_logger().info("lost")


@pytest.mark.parametrize("form", ["pretty", "json"])
def test_what_a_sandbox_says_is_cut_and_does_nothing_to_a_terminal(
    capsys: pytest.CaptureFixture[str], form: str
) -> None:
    logs.configure("info", form)
    said = "\x1b[2J\x1b]0;x\x07" + "x" * 60_000
    structlog.get_logger().warning("agent failed", reason=said, detail="a\nb [error] forged")
    try:
        raise ValueError(said[:20])
    except ValueError as error:
        structlog.get_logger().error("shown", exc_info=error)
    shown = capsys.readouterr().err
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert len(shown) < 10_000
    assert "\nb [error]" not in shown
