import contextvars

from atoll.sdk import _calls, _shared
from atoll.wire import ops
from atoll.wire.base import Empty
from atoll.wire.objects import CALLS_HEADER


def test_every_request_of_a_method_names_the_calls_that_wait_for_it() -> None:
    def request() -> str | None:
        _calls.waiting.set(("outer", "inner"))
        return _shared.build_call(ops.VERSION, {}, Empty()).headers.get(CALLS_HEADER)

    assert contextvars.copy_context().run(request) == "outer,inner"
    assert CALLS_HEADER not in _shared.build_call(ops.VERSION, {}, Empty()).headers
