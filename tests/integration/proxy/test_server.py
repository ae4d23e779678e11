"""Visitors' connections: refusals, deadlines, cuts, the log of visits."""

import asyncio
import json

import pytest

from atoll.errors import ContainerUnavailableError
from atoll.proxy import server
from atoll.proxy.access import Access
from integration.proxy.sites import NAME, answering, get, world


async def test_what_was_asked_is_in_the_log_without_its_query() -> None:
    async with world(answering()) as here:
        await here.ask("/a?secret=1")
        (visit,) = here.place.visits
        assert (visit.method, visit.path, visit.status) == ("GET", "/a", 200)
        assert (visit.visitor, visit.received, visit.sent) == ("1.2.3.4", 0, 2)


async def test_a_name_of_no_preview_ends_the_connection() -> None:
    async with world(answering()) as here:
        talk = await here.visit("GET / HTTP/1.1\r\nHost: elsewhere\r\n\r\n")
        assert b"421 Misdirected" in await talk.rest()


async def test_a_visitor_who_was_refused_may_ask_again_by_the_same_connection() -> None:
    async with world(answering()) as here:
        talk = await here.visit(get().replace("tok", "no"))
        refused = await talk.until(b"}")
        assert b"404 Not Found" in refused
        assert b"Connection: keep-alive" in refused
        talk.send(get())
        await talk.until(b"ok")
        assert len(here.place.visits) == 1


async def test_a_private_preview_is_entered_by_a_link_and_left_again() -> None:
    async with world(answering()) as here:
        here.place.access = Access(public=False, auth="cookie", secret="s")
        assert b"401 Unauthorized" in await here.ask()
        assert b"401 Unauthorized" in await here.ask("/.atoll/enter/" + "x" * 32)
        entered = await here.ask("/.atoll/enter/" + "k" * 32)
        assert b"303 See Other\r\nLocation: /\r\n" in entered
        cookie = entered.partition(b"Set-Cookie: ")[2].partition(b";")[0].decode()
        assert b"ok" in await here.ask("/", f"Cookie: {cookie}\r\n")
        here.place.access = here.place.access._replace(secret="t")
        assert b"401 Unauthorized" in await here.ask("/", f"Cookie: {cookie}\r\n")


async def test_who_sends_a_head_too_slowly_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_TIME", 0.2)
    async with world(answering()) as here:
        talk = await here.visit("GET / HTTP/1.1\r\nHost:")
        assert await talk.rest() == b""


async def test_who_asks_nothing_more_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IDLE", 0.2)
    async with world(answering()) as here:
        talk = await here.visit(get())
        await talk.until(b"ok")
        assert await talk.rest() == b""


async def test_an_answer_may_take_longer_than_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.5)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    monkeypatch.setattr(server, "HEAD_TIME", 0.1)
    monkeypatch.setattr(server, "IDLE", 0.1)
    async with world(serve) as here:
        talk = await here.visit(get())
        await talk.until(b"ok")


async def test_a_head_too_large_is_refused() -> None:
    async with world(answering()) as here:
        talk = await here.visit(get("/", f"X: {'a' * 70_000}\r\n"))
        assert b"HTTP/1.1 431" in await talk.rest()


async def test_a_cut_ends_what_is_open_in_the_middle_of_an_answer() -> None:
    half = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"
    async with world(answering(half)) as here:
        talks = [await here.visit(get()) for _ in range(5)]
        for talk in talks:
            await talk.until(b"half")
        for cut in list(here.place.cuts):
            cut()
        assert all([await talk.cut() for talk in talks])
        assert here.place.cuts == set()
        assert here.site.connections == set()


async def test_one_connection_too_many_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(answering()) as here:

        def full(_: object) -> None:
            raise ContainerUnavailableError("full", retry_after=5)

        monkeypatch.setattr(here.place, "connected", full)
        answer = await here.ask()
        assert b"HTTP/1.1 503" in answer
        assert b"Retry-After: 5" in answer


async def test_a_server_inside_that_vanishes_is_no_fault_of_ours() -> None:
    async with world(answering()) as here:
        here.place.to = 1
        answer = await here.ask()
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "SERVICE_NOT_RESPONDING"
        page = await here.ask("/", "Accept: text/html\r\n")
        assert b"<!doctype html>" in page


async def test_head_is_answered_without_a_body_also_by_a_refusal() -> None:
    async with world(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")) as here:
        for name in (NAME, NAME.replace("tok", "no")):
            talk = await here.visit(f"HEAD / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n")
            assert (await talk.rest()).endswith(b"\r\n\r\n")
