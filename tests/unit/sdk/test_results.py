"""Content of files in the form a caller asks for."""

import base64

import pytest

from atoll.errors import ValidationFailedError
from atoll.sdk._results import shape_content
from atoll.wire.files import FileMeta


def meta(*, binary: bool = False) -> FileMeta:
    return FileMeta(
        path="/workspace/x",
        size=4,
        mime_type="text/plain",
        is_binary=binary,
        encoding="base64" if binary else "utf-8",
        etag="e",
    )


def test_without_a_wish_valid_text_comes_as_text() -> None:
    result = shape_content("é\n".encode(), meta(), None)
    assert (result.content, result.encoding) == ("é\n", "utf-8")
    assert result.to_dict()["mimeType"] == "text/plain"
    assert result.success
    assert result.timestamp.tzinfo


def test_without_a_wish_anything_else_comes_as_base64() -> None:
    """Decided by the content itself: a part of a text can start inside a character."""
    result = shape_content(b"\xa9\n", meta(), None)
    assert (result.content, result.encoding) == ("qQo=", "base64")


def test_bytes_and_base64_never_fail() -> None:
    data = bytes(range(256))
    assert shape_content(data, meta(binary=True), "bytes").content == data
    encoded = shape_content(data, meta(binary=True), "base64").content
    assert base64.b64decode(encoded) == data


def test_a_codec_that_does_not_fit_is_a_typed_error_with_the_position() -> None:
    with pytest.raises(ValidationFailedError) as caught:
        shape_content(b"ok\xff", meta(), "utf-8")
    assert caught.value.context["position"] == 2
    assert shape_content(b"\xe9", meta(), "latin-1").content == "é"
