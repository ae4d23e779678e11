import msgspec
import pytest

from atoll.wire.namespaces import NamespaceInfo, NamespacePage, NamespaceQuery


def test_a_page_is_its_entries() -> None:
    one = NamespaceInfo(name="A", sandboxes=1, running=0, configured=False)
    assert list(NamespacePage(namespaces=[one])) == [one]


@pytest.mark.parametrize("limit", [0, 1_001])
def test_a_page_has_a_size(limit: int) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"limit": limit}, NamespaceQuery)
