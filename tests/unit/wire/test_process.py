import base64
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from atoll.wire.process import DEFAULT_TIMEOUT_MS, ExecRequest, ExecResult, as_text


def result(**fields: Any) -> ExecResult:
    return ExecResult(**{"exit_code": 0, "timestamp": datetime(2030, 1, 1, tzinfo=UTC), **fields})


def test_a_command_has_a_time_limit_unless_it_says_none() -> None:
    assert (
        msgspec.json.decode(b'{"command":"x"}', type=ExecRequest).timeout_ms == DEFAULT_TIMEOUT_MS
    )
    assert (
        msgspec.json.decode(b'{"command":"x","timeout":null}', type=ExecRequest).timeout_ms is None
    )


def test_text_is_lossy_and_bytes_are_exact() -> None:
    found = result(stdout_bytes=b"a\xff", stderr_bytes=b"e", duration_ms=1_500)
    assert (found.stdout, found.stderr, found.stdout_bytes) == ("a\ufffd", "e", b"a\xff")
    assert found.duration == 1.5
    assert found.success
    assert not result(exit_code=1).success


@pytest.mark.parametrize(
    ("encoding", "expected"), [("utf-8", "é"), ("latin-1", "Ã©"), ("base64", "w6k=")]
)
def test_output_in_other_encodings(encoding: str, expected: str) -> None:
    assert as_text("é".encode(), encoding) == expected
    assert result(stdout_bytes="é".encode(), encoding=encoding).stdout == expected


def test_the_wire_form_has_bytes_only_where_text_loses_them() -> None:
    wire = result(stdout_bytes=b"ok", stderr_bytes=b"\xff").to_dict()
    assert "stdoutBase64" not in wire
    assert base64.b64decode(wire["stderrBase64"]) == b"\xff"
    assert wire["timestamp"] == "2030-01-01T00:00:00Z"
    assert (wire["exitCode"], wire["success"]) == (0, True)
