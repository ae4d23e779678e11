from atoll.wire import ops, ops_storage
from atoll.wire.operation import Op


def test_all_of_them_are_in_the_table() -> None:
    """An operation that is not there has no route."""
    own = {value for value in vars(ops_storage).values() if isinstance(value, Op)}
    assert own <= set(ops.TABLE)
    assert {op.name for op in own} >= {"take_snapshot", "create_backup", "create_volume"}
