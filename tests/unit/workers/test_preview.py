import pytest

from atoll.errors import ValidationFailedError
from atoll.workers import Request
from atoll.workers.preview import end_to_end, proxy_to_sandbox


async def test_an_ordinary_request_goes_on_to_the_worker() -> None:
    assert await proxy_to_sandbox(Request("http://localhost:8787/"), None) is None


async def test_a_preview_needs_to_know_whose_sandboxes_may_be_visited() -> None:
    with pytest.raises(ValidationFailedError, match="namespace"):
        await proxy_to_sandbox(Request("http://8080-box-tok.localhost/"), None)


def test_what_is_about_the_connection_is_not_for_the_visitor() -> None:
    fields = [("Content-Type", "x"), ("Connection", "close"), ("Transfer-Encoding", "chunked")]
    assert end_to_end(fields) == [("Content-Type", "x")]


def test_nor_what_the_service_says_is_about_it() -> None:
    fields = [("connection", "close, X-Hop"), ("x-hop", "1"), ("trailer", "x"), ("x-end", "2")]
    assert end_to_end(fields) == [("x-end", "2")]
