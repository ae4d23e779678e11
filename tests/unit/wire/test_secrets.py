import msgspec
import pytest

from atoll.wire.secrets import MAX_VALUE, PutSecret, SecretUse


def test_a_value_is_in_no_text_about_it() -> None:
    assert "the-value" not in repr(PutSecret(value="the-value"))


@pytest.mark.parametrize("value", ["", "x" * (MAX_VALUE + 1)])
def test_a_value_has_a_size(value: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"value": value}, PutSecret)


def test_a_secret_is_for_some_hosts() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"name": "A", "hosts": []}, SecretUse)
