import string

from atoll.wire import ops
from atoll.wire.keys import Scope
from atoll.wire.ops import Kind


def test_names_and_routes_are_unique() -> None:
    assert len({op.name for op in ops.TABLE}) == len(ops.TABLE)
    assert len({(op.method, op.path) for op in ops.TABLE}) == len(ops.TABLE)


def test_every_path_is_under_the_api_version() -> None:
    assert all(op.path.startswith(f"/v{ops.API_VERSION}/") for op in ops.TABLE)


def test_placeholders_are_those_the_server_and_the_sdk_fill() -> None:
    known = {
        "namespace", "id", "operation", "session", "process", "key", "port", "snapshot", "backup",
        "project", "call", "schedule", "context", "volume", "secret",
    }  # fmt: skip
    for op in ops.TABLE:
        assert {name for _, name, _, _ in string.Formatter().parse(op.path) if name} <= known


def test_what_only_reads_takes_no_idempotency_key() -> None:
    assert not ops.INFO.mutates
    assert ops.EXEC.mutates
    assert all(op.scope is not Scope.READ for op in ops.TABLE if op.method in {"PUT", "DELETE"})


def test_streams_up_and_down_have_their_fields_in_the_query() -> None:
    for op in ops.TABLE:
        if op.kind in {Kind.UPLOAD, Kind.DOWNLOAD}:
            for field in op.request.__struct_fields__:
                assert field.isidentifier()
            assert op.method in {"GET", "PUT", "POST"}
