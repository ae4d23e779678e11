from typing import Any

import pytest

from atoll.engine.commands.interpreter import check_variables, code_header
from atoll.errors import ValidationFailedError
from atoll.wire.interpreter import RunCodeRequest


def test_the_agent_is_asked_for_what_the_caller_wants() -> None:
    request = RunCodeRequest(code="1", context="c", env_vars={"A": None}, timeout_ms=1500)
    header = code_header(request, "op", cancel_on_drop=True, buffered=True)
    assert (header["op"], header["id"], header["code"]) == ("code.run", "op", "1")
    assert (header["timeout"], header["env"], header["cancel_on_drop"]) == (1.5, {"A": None}, True)
    assert header["output_limit"] == 32 << 20
    endless = code_header(
        RunCodeRequest(code="1", timeout_ms=None), "op", cancel_on_drop=False, buffered=False
    )
    assert (endless["timeout"], endless["output_limit"]) == (None, None)


def test_variables_have_one_of_the_forms() -> None:
    check_variables({"a": {"json": None}, "b": {"bytes": ""}, "c": {"parquet": "UEFSMQ=="}})


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({}, "variables.x"),
        ({"other": 1}, "variables.x"),
        ({"json": 1, "bytes": ""}, "variables.x"),
        ({"json": 1, "other": 1}, "variables.x"),
        ({"bytes": 1}, "variables.x.bytes"),
        ({"bytes": None}, "variables.x.bytes"),
        ({"bytes": "é"}, "variables.x.bytes"),
        ({"bytes": "A"}, "variables.x.bytes"),
        ({"bytes": "A A="}, "variables.x.bytes"),
        ({"parquet": {}}, "variables.x.parquet"),
        ({"parquet": "AA=="}, "variables.x.parquet"),
    ],
)
def test_a_variable_without_a_proper_form_is_refused_by_its_field(
    form: dict[str, Any], field: str
) -> None:
    with pytest.raises(ValidationFailedError) as refused:
        check_variables({"fine": {"json": 1}, "x": form})
    assert refused.value.context["field"] == field


def test_what_is_no_name_of_a_variable_is_refused() -> None:
    with pytest.raises(ValidationFailedError) as refused:
        check_variables({"no name": {"json": 1}})
    assert refused.value.context == {"field": "variables", "name": "no name"}
