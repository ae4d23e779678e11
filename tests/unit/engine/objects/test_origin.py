import contextvars

from atoll.engine.objects import origin
from atoll.wire.objects import MAX_CALLS


def test_a_request_names_the_calls_that_wait_for_it() -> None:
    def request() -> None:
        origin.note("a,b")
        assert origin.calls() == ("a", "b")

    contextvars.copy_context().run(request)
    assert origin.calls() == ()


def test_a_header_of_any_length_costs_little() -> None:
    def request() -> None:
        origin.note(",".join("x" * 10_000))
        assert len(origin.calls()) == MAX_CALLS + 1

    contextvars.copy_context().run(request)


def test_only_what_is_done_in_the_block_is_part_of_a_start() -> None:
    with origin.preparing():
        assert origin.is_preparing()
    assert not origin.is_preparing()
