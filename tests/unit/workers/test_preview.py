from atoll.workers import Request
from atoll.workers.preview import proxy_to_sandbox


async def test_an_ordinary_request_goes_on_to_the_worker() -> None:
    assert await proxy_to_sandbox(Request("http://localhost:8787/"), None) is None


async def test_a_preview_of_nothing_exposed_is_an_invalid_token() -> None:
    response = await proxy_to_sandbox(Request("http://8080-box-tok.localhost/"), None)
    assert response is not None
    assert response.status == 404
    assert (await response.json())["code"] == "INVALID_TOKEN"
