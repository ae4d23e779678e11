from typing import Any

import pytest

from atoll.workers.dates import Dated


async def told(start: dict[str, Any]) -> list[bytes]:
    sent: list[Any] = []

    async def app(_: Any, receive: Any, send: Any) -> None:
        await send(start)
        await send({"type": "http.response.body"})

    async def send(message: Any) -> None:
        sent.append(message)

    await Dated(app)({}, None, send)
    assert sent[1] == {"type": "http.response.body"}
    return [value for name, value in sent[0]["headers"] if name.lower() == b"date"]


@pytest.mark.parametrize("kind", ["http.response.start", "websocket.http.response.start"])
async def test_an_answer_has_one_date_and_that_of_who_made_it_comes_first(kind: str) -> None:
    theirs = b"Thu, 01 Jan 1970 00:00:00 GMT"
    assert await told({"type": kind, "headers": [(b"Date", theirs)]}) == [theirs]
    (ours,) = await told({"type": kind})
    assert ours.endswith(b" GMT")
