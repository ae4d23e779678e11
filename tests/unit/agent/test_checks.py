from typing import Any

import pytest

from atoll import errors
from atoll.agent.checks import check, directory


@pytest.mark.parametrize(
    "fields",
    [
        {"env": {"A=B": "1"}}, {"env": {"": "1"}}, {"env": {"A": "\0"}}, {"env": {"A": 1}},
        {"env": {"A\0": "1"}}, {"env": ["A"]}, {"env": "A=1"}, {"cwd": "a\0b"}, {"cwd": 3},
        {"timeout": "1"}, {"timeout": True}, {"timeout": -1}, {"output_limit": 1.5},
        {"output_limit": -1}, {"cols": "80"}, {"user": 0}, {"cols": 0}, {"rows": 70_000}, {"timeout": float("nan")}, {"timeout": float("inf")},
    ],
)  # fmt: skip
def test_a_wrong_field_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(errors.ValidationFailedError):
        check({"command": "true", **fields})


@pytest.mark.parametrize(
    "fields", [{}, {"timeout": 0.5}, {"timeout": None}, {"env": {"A": None}}, {"env": None}]
)
def test_a_right_request_passes(fields: dict[str, Any]) -> None:
    check({"command": ["true", ""], **fields})


def test_a_directory_is_relative_to_where_it_belongs() -> None:
    assert directory(None, "/workspace") == "/workspace"
    assert directory("a/b", "/workspace") == "/workspace/a/b"
    assert directory("/a", "/workspace") == "/a"
