import pytest

from atoll.workers.bindings import Env


def test_bindings_variables_and_secrets_are_attributes() -> None:
    env = Env({"Sandbox": "ns"}, {"MODE": "x", "KEY": "public"}, {"KEY": "s3cret"})
    assert (env.Sandbox, env.MODE, env["KEY"]) == ("ns", "x", "s3cret")
    assert set(env) == {"Sandbox", "MODE", "KEY"}


def test_a_name_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(AttributeError, match="Sandbox"):
        _ = Env({"Sandbox": 1}, {}, {}).Sandbx


def test_secrets_are_not_printed() -> None:
    assert "s3cret" not in repr(Env({}, {}, {"KEY": "s3cret"}))
