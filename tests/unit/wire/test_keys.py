from datetime import UTC, datetime

import msgspec
import pytest

from atoll.wire.keys import AuditRecord, CreateKey, Scope


def test_a_key_needs_a_name_that_fits_a_line() -> None:
    for name in ("", "a\nb", "a\x1b[0m", "x" * 101):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"name": name}, CreateKey)
    assert msgspec.convert({"name": "Bob's laptop, Büro"}, CreateKey).scope is Scope.RUN


def test_a_record_without_details_is_short() -> None:
    record = AuditRecord(
        number=1, at=datetime(2026, 1, 1, tzinfo=UTC), caller="k", operation="o", status=200,
        request_id="r",
    )  # fmt: skip
    assert set(record.to_dict()) == {"number", "at", "caller", "operation", "status", "requestId"}
