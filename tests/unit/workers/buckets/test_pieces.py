import pytest

from atoll.errors import ValidationFailedError
from atoll.workers.buckets.pieces import Content, pieces, spooled


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("ü", "ü".encode()),
        (b"x", b"x"),
        (bytearray(b"y"), b"y"),
        (memoryview(b"z"), b"z"),
        (None, b""),
    ],
)
async def test_plain_values_are_files(value: Content, content: bytes) -> None:
    with await spooled(value) as file:
        assert file.read() == content


async def test_what_is_no_content_is_refused() -> None:
    with pytest.raises(ValidationFailedError):
        await spooled(7)  # type: ignore[arg-type]


async def test_a_blocking_iterator_is_read_piece_by_piece() -> None:
    assert [piece async for piece in pieces(iter([memoryview(b"a"), b"b"]))] == [b"a", b"b"]
