import re

from atoll.server import openapi
from atoll.wire import ops

DOCUMENT = openapi.build(ops.TABLE)


def test_every_operation_is_in_the_document_once() -> None:
    found = {
        (method.upper(), path, entry["operationId"])
        for path, entries in DOCUMENT["paths"].items()
        for method, entry in entries.items()
    }
    assert found == {(op.method, op.path, op.name) for op in ops.TABLE}


def test_every_reference_leads_somewhere() -> None:
    text = str(DOCUMENT)
    for kind, name in re.findall(r"#/components/(\w+)/(\w+)", text):
        assert name in DOCUMENT["components"][kind]


def test_every_placeholder_is_described() -> None:
    for path, entries in DOCUMENT["paths"].items():
        for entry in entries.values():
            told = {p["name"] for p in entry["parameters"] if p["in"] == "path"}
            assert told == set(re.findall(r"{(\w+)}", path))


def test_fields_stand_in_the_query_or_in_the_body_and_never_in_both() -> None:
    for op in ops.TABLE:
        entry = DOCUMENT["paths"][op.path][op.method.lower()]
        has_query = any(p["in"] == "query" for p in entry["parameters"])
        has_json = "application/json" in entry.get("requestBody", {}).get("content", {})
        assert not (has_query and has_json)
        assert has_json is not openapi.in_query(op)
