import re

from atoll.server.bridge.sandboxes import new_id
from atoll.wire import ids


def test_ids_are_what_clients_expect_and_nobody_guesses() -> None:
    found = {new_id() for _ in range(100)}
    assert len(found) == 100
    assert all(re.fullmatch("[a-z2-7]{26}", id) for id in found)
    assert all(ids.check_sandbox_id(id) for id in found)
