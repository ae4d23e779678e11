from collections.abc import AsyncIterator
from typing import cast

import pytest

from atoll.host.budget import Budget
from atoll.host.messages import Incoming
from atoll.network.gateway import held
from atoll.network.gateway.protocol import MAX_BODY
from atoll.wire.http1 import Data, End, Event, Request, indexed


class Sent:
    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces

    async def body(self) -> AsyncIterator[Event]:
        for piece in self._pieces:
            yield Data(piece)
        yield End([])


def sent(*pieces: bytes) -> Incoming:
    return cast("Incoming", Sent(*pieces))


def request(length: int) -> Request:
    fields = [(b"Content-Length", b"%d" % length)]
    return Request(b"POST", b"/", "1.1", fields, indexed(fields), True, False, True)


async def test_a_body_is_held_by_what_came_or_is_to_come() -> None:
    budget = Budget(100)
    with budget.share() as share:
        assert await held.read(sent(b"ab", b"c"), share) == b"abc"
        assert share.size == 3
    with budget.share() as share:
        held.expect(request(10), share)
        assert await held.read(sent(b"ab"), share) == b"ab"
        assert share.size == 10
    assert budget.taken == 0


async def test_without_room_a_body_is_refused_before_it_is_read() -> None:
    budget = Budget(4)
    with budget.share() as share, pytest.raises(held.Refused) as refused:
        held.expect(request(5), share)
    assert refused.value.status == 503
    with budget.share() as share, pytest.raises(held.Refused) as refused:
        await held.read(sent(b"abc", b"de"), share)
    assert refused.value.status == 503


def test_one_that_is_too_large_takes_no_room() -> None:
    budget = Budget(2 * MAX_BODY)
    with budget.share() as share:
        with pytest.raises(held.Refused) as refused:
            held.expect(request(MAX_BODY + 1), share)
        assert (refused.value.status, budget.taken) == (413, 0)
