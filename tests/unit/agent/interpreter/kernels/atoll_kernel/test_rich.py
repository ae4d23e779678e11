import json
from typing import Any

from atoll.agent.interpreter.kernels.atoll_kernel import rich


class Rich:
    def __repr__(self) -> str:
        return "rich"

    def _repr_html_(self) -> str:
        return "<b>"

    def _repr_png_(self) -> tuple[bytes, dict[str, Any]]:
        return b"\x89PNG", {}

    def _repr_latex_(self) -> str:
        raise ValueError

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"text/markdown": "*m*", "application/x-own": {"a": float("nan")}}


def test_a_value_has_all_its_forms_but_the_broken_one() -> None:
    found = json.loads(rich.encode(rich.forms(Rich()), type="result"))
    assert found == {
        "type": "result", "text": "rich", "html": "<b>", "png": "iVBORw==", "markdown": "*m*",
        "data": {"application/x-own": {"a": None}},
    }  # fmt: skip
    assert rich.forms(Rich) == {"text": repr(Rich)}


def test_containers_have_json_beside_their_text() -> None:
    found = json.loads(rich.encode(rich.forms({b"k": {1}}), type="result"))
    assert (found["text"], found["json"]) == ("{b'k': {1}}", {"b'k'": [1]})


def test_what_is_too_large_is_flagged() -> None:
    forms = {"text": "x" * (rich.MAX_TEXT + 1), "html": "h" * (rich.MAX_FORM + 1)}
    found = json.loads(rich.encode(forms, type="display"))
    assert len(found["text"]) == rich.MAX_TEXT
    assert "html" not in found
    assert set(found["truncated"]) == {"text", "html"}


def test_a_mime_bundle_keeps_what_has_no_name() -> None:
    found = rich.of_value([1], {"text/plain": "[1]", "application/geo+json": {}})
    assert found == {"text": "[1]", "data": {"application/geo+json": {}}, "json": [1]}
