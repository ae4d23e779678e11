import pytest

from atoll.agent.config import Config, parse


def test_defaults_and_fields_of_a_newer_engine() -> None:
    config = parse(b'{"generation": 3, "procs": [5, 6], "brand_new": 1}')
    assert config == Config(generation=3, procs=(5, 6))
    assert config.confine


def test_an_address_needs_a_token() -> None:
    with pytest.raises(PermissionError, match="token"):
        parse(b'{"tcp": {"host": "0.0.0.0", "port": 7070}}')


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"3"])
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises((ValueError, TypeError)):
        parse(data)


def test_limits_of_commands_are_none_unless_given() -> None:
    assert parse(b"{}").limits == {}
    assert parse(b'{"limits": {"NPROC": 7}}').limits == {"NPROC": 7}
