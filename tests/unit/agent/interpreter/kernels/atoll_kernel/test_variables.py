import json
from typing import Any

import pytest

from atoll.agent.interpreter.kernels.atoll_kernel import variables


def test_forms_become_values() -> None:
    namespace: dict[str, Any] = {}
    variables.assign(namespace, {"a": {"json": [1]}, "b": {"bytes": "AAE="}})
    assert namespace == {"a": [1], "b": b"\x00\x01"}


def test_all_or_none_are_set() -> None:
    namespace: dict[str, Any] = {}
    with pytest.raises(ValueError, match="base64"):
        variables.assign(namespace, {"a": {"json": 1}, "b": {"bytes": "x"}})
    assert namespace == {}


class Odd:
    @property
    def shape(self) -> Any:
        raise ValueError

    def __repr__(self) -> str:
        raise ValueError


def test_own_variables_are_described_and_no_others() -> None:
    namespace = {
        "_hidden": 1, "json": json, "given": 2, "words": ["a"] * 1000, "table": dict.fromkeys(range(999)),
        "odd": Odd(), "n": 3, 4: "no name",
    }  # fmt: skip
    found = variables.describe(namespace, {"given"})  # type: ignore[arg-type]
    assert [one["name"] for one in found] == ["n", "odd", "table", "words"]
    shapes = {one["name"]: one["shape"] for one in found}
    assert shapes == {"n": None, "odd": None, "table": [999], "words": [1000]}
    assert all(len(one["preview"]) < 1000 for one in found)
