import msgspec
import pytest

from atoll.wire.agent import ExitRecord
from atoll.wire.records import Exit, Gap, Started


def test_what_an_agent_says_of_an_end_is_read_whole() -> None:
    """A field that was left out here would be lost to every caller."""
    assert set(Exit.__struct_fields__) == set(ExitRecord.__annotations__)


@pytest.mark.parametrize(
    ("kind", "body"),
    [(Exit, b"{}"), (Exit, b'{"exit_code": "0"}'), (Gap, b'{"from_offset": 1}'), (Started, b"[]")],
)
def test_what_lacks_its_meaning_is_refused(kind: type[msgspec.Struct], body: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=kind)
