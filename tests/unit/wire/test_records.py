import msgspec
import pytest

from atoll.wire.records import Exit, Gap, Started


@pytest.mark.parametrize(
    ("kind", "body"),
    [(Exit, b"{}"), (Exit, b'{"exit_code": "0"}'), (Gap, b'{"from_offset": 1}'), (Started, b"[]")],
)
def test_what_lacks_its_meaning_is_refused(kind: type[msgspec.Struct], body: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=kind)
