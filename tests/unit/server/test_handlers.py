from atoll.server.handlers import BODILESS, HANDLERS
from atoll.wire import ops


def test_every_operation_of_the_table_has_its_handler() -> None:
    assert set(HANDLERS) == set(ops.TABLE)


def test_what_streams_in_is_never_read_as_a_whole() -> None:
    uploads = {op for op in ops.TABLE if op.kind in {ops.Kind.UPLOAD, ops.Kind.DOWNLOAD}}
    assert uploads <= BODILESS <= set(HANDLERS)
