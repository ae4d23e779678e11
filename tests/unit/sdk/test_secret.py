from typing import Any

import pytest

import atoll
from atoll.errors import ValidationFailedError
from atoll.sdk import _arguments, _secret
from atoll.wire.secrets import SecretUse

KEY = atoll.secret("API_KEY", hosts=["api.example.com"])
USE = SecretUse(name="API_KEY", hosts=["api.example.com"])


def test_a_secret_in_env_goes_apart_from_text() -> None:
    options = _arguments.sandbox_options(env={"KEY": KEY, "A": "b", "GONE": None})
    assert options is not None
    assert options.env == {"A": "b", "GONE": None}
    assert options.secrets == {"KEY": USE}


def test_env_without_secrets_takes_back_those_that_were_there() -> None:
    options = _arguments.sandbox_options(env={"KEY": "text"})
    assert options is not None
    assert options.secrets == {}
    unchanged = _arguments.sandbox_options(labels={"a": "b"})
    assert unchanged is not None
    assert unchanged.secrets is None


def test_text_is_never_taken_for_a_secret() -> None:
    """Text may come from anybody; a secret for a host of their choice may not."""
    assert _secret.split({"A": repr(KEY)}) == ({"A": repr(KEY)}, {})


def test_one_host_may_be_given_alone() -> None:
    assert atoll.secret("A", hosts="a.test").use.hosts == ["a.test"]


@pytest.mark.parametrize(
    ("name", "hosts"),
    [("", ["a.test"]), ("a b", ["a.test"]), ("A", []), ("A", None), ("A", [1]), (None, ["a.test"])],
)
def test_what_cannot_be_meant_is_refused(name: Any, hosts: Any) -> None:
    with pytest.raises(ValidationFailedError):
        atoll.secret(name, hosts=hosts)


def test_a_single_command_has_no_secrets() -> None:
    with pytest.raises(ValidationFailedError, match="as a whole"):
        _arguments.mapping("env", {"KEY": KEY})
