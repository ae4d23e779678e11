from datetime import UTC, datetime

import msgspec
import pytest

from atoll.wire.git import CLONE_TIMEOUT_MS, GitCheckout, GitCheckoutRequest


def test_a_request_has_a_time_limit_unless_it_says_none() -> None:
    plain = msgspec.json.decode(b'{"url": "https://h/r"}', type=GitCheckoutRequest)
    endless = msgspec.json.decode(b'{"url": "u", "cloneTimeout": null}', type=GitCheckoutRequest)
    assert (plain.clone_timeout_ms, endless.clone_timeout_ms) == (CLONE_TIMEOUT_MS, None)


def test_a_misspelt_option_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"url": "u", "targetdir": "x"}', type=GitCheckoutRequest)


def test_the_result_has_a_wire_form() -> None:
    done = GitCheckout(url="u", path="/p", commit="c", timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    assert done.to_dict() == {
        "success": True, "url": "u", "path": "/p", "branch": None, "commit": "c",
        "timestamp": "2026-01-01T00:00:00Z",
    }  # fmt: skip
