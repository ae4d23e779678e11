from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from atoll.wire.files import FileInfo, FileList
from atoll.wire.process import ExecResult
from atoll.workers import URL, Headers, Request, Response


def test_header_names_are_case_insensitive_and_may_repeat() -> None:
    headers = Headers([("Set-Cookie", "a=1"), ("set-cookie", "b=2")])
    assert headers.get_all("SET-COOKIE") == ["a=1", "b=2"]
    headers["Set-Cookie"] = "c=3"
    assert headers.multi_items() == [("set-cookie", "c=3")]


def test_deleting_a_header_that_is_not_there_is_a_key_error() -> None:
    headers = Headers({"a": "1"})
    del headers["A"]
    with pytest.raises(KeyError):
        del headers["a"]


def test_a_url_is_a_string_that_knows_its_parts() -> None:
    url = URL("http://Host.example:8080/a%20b?x=1&x=2&y=")
    assert (url.hostname, url.port, url.pathname) == ("host.example", 8080, "/a%20b")
    assert url.host == "host.example:8080"
    assert (URL("http://a:b@H/").host, URL("http://[::1]:80").host) == ("h", "[::1]:80")
    assert url.search_params == {"x": "2", "y": ""}
    assert url.endswith("y=")


async def test_a_request_body_is_read_at_most_once() -> None:
    request = Request("http://h/", method="post", body=b'{"a": 1}')
    assert await request.json() == {"a": 1}
    with pytest.raises(RuntimeError):
        await request.text()


async def test_a_request_may_be_made_of_another() -> None:
    """The idiom of the web: the same request with other headers."""
    first = Request("http://a.test/p", method="put", headers={"a": "b"}, body=b"body", client="c")
    same = Request(first)
    assert (same.url, same.method, same.client) == ("http://a.test/p", "PUT", "c")
    same.headers["a"] = "changed"
    assert first.headers["a"] == "b"
    other = Request(same, headers={**same.headers, "x": "y"})
    assert dict(other.headers) == {"a": "changed", "x": "y"}
    assert await other.bytes() == b"body"
    assert first.is_read
    assert same.is_read


def test_the_url_of_a_request_may_be_changed_and_is_one_still() -> None:
    request = Request("http://a.test/p")
    request.url = request.url.replace("a.test", "b.test")
    assert (request.url, request.url.hostname) == ("http://b.test/p", "b.test")


async def test_a_body_that_was_read_is_not_lost_silently() -> None:
    first = Request("http://a.test/", method="POST", body=b"body")
    read = await first.bytes()
    with pytest.raises(RuntimeError, match="read already"):
        Request(first, headers={})
    assert await Request(first, body=read).bytes() == b"body"
    empty = Request("http://a.test/")
    await empty.bytes()
    assert Request(empty).url == "http://a.test/"


@pytest.mark.parametrize("wrong", [5, ["a"], {"a": 1}, object()])
def test_what_is_no_url_or_body_is_told_where_it_is_given(wrong: Any) -> None:
    with pytest.raises(TypeError, match="URL"):
        Request(wrong)
    with pytest.raises(TypeError, match="body"):
        Request("http://a.test/", body=wrong)
    with pytest.raises(TypeError, match="body"):
        Response(wrong)


async def test_forms_are_read_in_both_encodings() -> None:
    plain = Request(
        "http://h/",
        headers={"content-type": "application/x-www-form-urlencoded"},
        body=b"a=1&b=%20",
    )
    assert await plain.form_data() == {"a": "1", "b": " "}
    body = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--x--\r\n'
    parts = Request(
        "http://h/", headers={"content-type": "multipart/form-data; boundary=x"}, body=body
    )
    assert await parts.form_data() == {"a": "1"}


async def test_json_makes_a_response_of_results_and_reads_one() -> None:
    result = ExecResult(exit_code=0, stdout_bytes=b"4\n", timestamp=datetime.now(UTC))
    response = Response.json({"result": result})
    assert response.headers["content-type"] == "application/json"
    assert (await response.json())["result"]["stdout"] == "4\n"


async def test_results_are_without_fields_of_no_value_and_null_of_the_users_own_is_kept() -> None:
    page = FileList(files=[entry()], path="/", count=1)
    told = await Response.json({"page": page, "mine": None}).json()
    assert told["mine"] is None
    assert "cursor" not in told["page"]
    assert "target" not in told["page"]["files"][0]


def entry() -> FileInfo:
    return FileInfo(
        name="a", absolute_path="/a", type="file", size=0, modified_at=datetime.now(UTC), mode=0,
        permissions="---------",
    )  # fmt: skip


def test_what_json_cannot_hold_is_an_error_not_a_guess() -> None:
    with pytest.raises(TypeError):
        Response.json({"a": object()})
    with pytest.raises(ValueError):
        Response.json(float("nan"))


def test_a_redirect_needs_the_status_of_one() -> None:
    assert Response.redirect("/x").headers["location"] == "/x"
    with pytest.raises(ValueError):
        Response.redirect("/x", 200)


def test_a_status_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError):
        Response(status=99)


async def test_text_has_a_content_type_and_streams_stay_streams() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    assert Response("x").headers["content-type"] == "text/plain;charset=UTF-8"
    assert await Response(chunks()).bytes() == b"ab"
