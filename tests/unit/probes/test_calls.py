from typing import Any

import msgspec
import pytest

from atoll.probes import calls
from atoll.wire.ops import TABLE, Op


@pytest.mark.parametrize("op", TABLE, ids=lambda op: op.name)
def test_there_is_a_well_formed_request_for_every_operation(op: Op[Any, Any]) -> None:
    """A new operation whose fields need examples of their own is told here, not skipped."""
    made = calls.request(op, namespace="N", id="box")
    assert isinstance(msgspec.convert(made.fields, op.request), op.request)
    assert "{" not in made.path
    assert made.arguments["method"] == op.method


@pytest.mark.parametrize("op", TABLE, ids=lambda op: op.name)
def test_every_field_that_takes_text_is_found(op: Op[Any, Any]) -> None:
    for name, put in calls.texts(op):
        assert name not in calls.RUN_BY_DESIGN
        made = calls.request(op, {name: put("hostile")}, namespace="N", id="box")
        assert "hostile" in str(made.arguments)
