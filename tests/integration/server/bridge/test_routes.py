"""The bridge against scripted agents: what is refused, in which form, and what reaches an agent."""

import asyncio
import base64
from typing import Any

import httpx2
import pytest

from atoll import errors
from atoll.engine.engine import Engine
from atoll.server.app import application
from atoll.server.auth import Listener
from atoll.server.gate import Desk
from atoll.wire import frames
from atoll.wire.frames import Kind
from atoll.wire.keys import AuditQuery, CreateKey, Scope
from integration.engine.scripted import Peer, World

BOX = "/v1/sandbox/box"
EXEC = {"argv": ["echo", "hi"]}


def error(answer: httpx2.Response) -> tuple[int, str]:
    """Status and code; the body has the two fields that clients know, and no other."""
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    assert set(answer.json()) == {"error", "code"}, answer.text
    return answer.status_code, answer.json()["code"]


BAD: tuple[tuple[str, str, bytes | None, tuple[int, str]], ...] = (
    ("GET", "/v1/nope", None, (404, "invalid_request")),
    ("PATCH", BOX, None, (404, "invalid_request")),
    ("GET", BOX + "/exec", None, (404, "invalid_request")),
    ("POST", "/v1/sandbox/-box/exec", b"{}", (400, "invalid_request")),
    ("POST", f"/v1/sandbox/{'a' * 64}/exec", b'{"argv":["x"]}', (400, "invalid_request")),
    ("DELETE", "/v1/sandbox/a%20b", None, (400, "invalid_request")),
    ("GET", "/v1/sandbox/www/running", None, (400, "invalid_request")),
    ("POST", BOX + "/exec", b"{", (400, "invalid_request")),
    ("POST", BOX + "/exec", b"\xff", (400, "invalid_request")),
    ("POST", BOX + "/exec", b"[" * 200_000, (400, "invalid_request")),
    ("POST", BOX + "/exec", b"[]", (400, "invalid_request")),
    ("POST", BOX + "/exec", b"{}", (400, "invalid_request")),
    ("POST", BOX + "/exec", b'{"argv":[]}', (400, "invalid_request")),
    ("POST", BOX + "/exec", b'{"argv":"ls"}', (400, "invalid_request")),
    ("POST", BOX + "/exec", b'{"argv":["ls",7]}', (400, "invalid_request")),
    ("POST", BOX + "/exec", b'{"argv":["a\\u0000"]}', (400, "invalid_request")),
    ("POST", BOX + "/exec", b'{"argv":["x"],"timeout_ms":"5"}', (400, "invalid_request")),
    ("POST", BOX + "/exec", b'{"argv":["x"],"timeout_ms":-5}', (400, "invalid_request")),
    ("POST", BOX + "/exec", b'{"argv":["x"],"timeout_ms":1e99}', (400, "invalid_request")),
    ("POST", BOX + "/exec", b'{"argv":["x"],"cwd":"/etc"}', (403, "invalid_request")),
    ("GET", BOX + "/file/", None, (400, "invalid_request")),
    ("GET", BOX + "/file/etc/passwd", None, (403, "invalid_request")),
    ("PUT", BOX + "/file/workspace/%2e%2e/etc/x", b"x", (403, "invalid_request")),
    ("GET", BOX + "/pty", None, (400, "invalid_request")),
    ("POST", BOX + "/persist?excludes=a,../b", None, (400, "invalid_request")),
    ("POST", BOX + "/hydrate", b"", (400, "invalid_request")),
    ("POST", BOX + "/mount", b"{}", (400, "invalid_request")),
    ("POST", BOX + "/mount", b"7", (400, "invalid_request")),
    ("POST", BOX + "/unmount", b'{"mountPath":"/a/.."}', (400, "invalid_request")),
    ("POST", BOX + "/unmount", b'{"mountPath":"/a"}', (502, "unmount_error")),
    ("POST", BOX + "/session", b'{"id":"a b"}', (400, "invalid_request")),
    ("POST", BOX + "/session", b'{"env":7}', (400, "invalid_request")),
    ("POST", BOX + "/tunnel/80", None, (400, "invalid_request")),
    ("POST", BOX + "/tunnel/8080", b'{"name":"A"}', (400, "invalid_request")),
    ("POST", BOX + "/tunnel/8080", None, (502, "tunnel_error")),
)


async def test_bad_requests_are_told_in_the_bridges_form_and_start_nothing(
    client: httpx2.AsyncClient, world: World
) -> None:
    for method, path, body, expected in BAD:
        answer = await client.request(method, path, content=body)
        assert error(answer) == expected, (method, path, body)
    assert world.runtime.starts == 0


@pytest.mark.parametrize("path", ["/exec", "/file/workspace/x"])
async def test_sessions_have_plain_names(client: httpx2.AsyncClient, path: str) -> None:
    method = "POST" if path == "/exec" else "GET"
    answer = await client.request(
        method, BOX + path, json=EXEC if method == "POST" else None, headers={"Session-Id": "a b"}
    )
    assert (error(answer), answer.json()["error"]) == (
        (400, "invalid_request"),
        "Invalid session ID format",
    )


async def test_bodies_over_the_limit_are_refused(
    client: httpx2.AsyncClient, engine: Engine
) -> None:
    limits = engine.settings.server
    huge = b" " * (limits.max_body + 1)
    assert error(await client.post(BOX + "/exec", content=huge)) == (413, "invalid_request")
    announced = {"content-length": str(limits.max_hydrate + 1)}
    transport = httpx2.ASGITransport(application(Desk(engine), Listener.UNIX))
    async with httpx2.AsyncClient(transport=transport, base_url="http://engine") as local:
        answer = await local.post(BOX + "/hydrate", content=b"x", headers=announced)
    assert error(answer) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (errors.MaxInstancesExceededError("full", retry_after=5.0), (503, "capacity_exceeded")),
        (errors.ContainerUnavailableError("no network"), (502, "pool_error")),
        (RuntimeError("/secret/path"), (502, "exec_transport_error")),
    ],
)
async def test_a_sandbox_that_cannot_start_is_told_before_the_stream(
    client: httpx2.AsyncClient, world: World, failure: Exception, expected: tuple[int, str]
) -> None:
    world.runtime.failures["start"] = failure
    answer = await client.post(BOX + "/exec", json=EXEC)
    assert error(answer) == expected
    assert "secret" not in answer.text
    assert ("retry-after" in answer.headers) is (expected[0] == 503)


async def test_a_commands_stream_has_the_originals_bytes(
    client: httpx2.AsyncClient, world: World
) -> None:
    async def exec(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.STARTED, {"pid": 7})
        await peer.raw(frames.encode_output(Kind.STDOUT, 0, 0, b"a\0\xff"))
        await peer.send(Kind.HEARTBEAT)
        await peer.raw(frames.encode_output(Kind.STDERR, 1, 3, b"oops"))
        await peer.send(Kind.EXITED, {"exit_code": 3})

    world.runtime.scripts["exec"] = exec
    answer = await client.post(BOX + "/exec", json=EXEC | {"timeout_ms": 1500, "later": 1})
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.content == (
        b"event: stdout\ndata: AGH/\n\n".replace(b"AGH/", base64.b64encode(b"a\0\xff"))
        + b": heartbeat\n\nevent: stderr\ndata: b29wcw==\n\n"
        + b'event: exit\ndata: {"exit_code":3}\n\n'
    )
    seen = next(header for header in world.runtime.seen if header["op"] == "exec")
    assert seen["command"] == "echo hi"
    assert (seen["timeout"], seen["session"], seen["cancel_on_drop"]) == (1.5, None, True)


async def test_an_agent_that_breaks_off_is_an_error_and_no_exit_code(
    client: httpx2.AsyncClient, world: World
) -> None:
    async def exec(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.STARTED, {"pid": 7})
        peer.writer.close()

    world.runtime.scripts["exec"] = exec
    answer = await client.post(BOX + "/exec", json=EXEC)
    assert answer.status_code == 200
    assert answer.text.startswith("event: error\n")
    assert '"code":"exec_transport_error"' in answer.text


async def test_a_session_is_made_by_its_first_use(client: httpx2.AsyncClient, world: World) -> None:
    known: list[str] = []

    async def create(peer: Peer, header: dict[str, Any]) -> None:
        if header["id"] in known:
            exists = errors.SessionAlreadyExistsError("there is one")
            await peer.send(Kind.ERROR, exists.to_wire())
            return
        known.append(header["id"])
        await peer.send(Kind.REPLY, {"id": header["id"]})

    world.runtime.scripts["session.create"] = create
    for _ in range(2):
        answer = await client.post(BOX + "/exec", json=EXEC, headers={"Session-Id": "s"})
        assert '{"exit_code":0}' in answer.text
    runs = [header for header in world.runtime.seen if header["op"] == "exec"]
    assert [header["session"] for header in runs] == ["s", "s"]
    assert known == ["s"]
    created = await client.post(
        BOX + "/session", json={"id": "t", "cwd": "/tmp", "env": {"A": "1"}}
    )
    assert created.json() == {"id": "t"}
    deleted = await client.delete(BOX + "/session/t")
    assert (deleted.json()["success"], deleted.json()["sessionId"]) == (True, "t")


async def test_asking_and_deleting_what_never_was_makes_nothing(
    client: httpx2.AsyncClient, world: World
) -> None:
    assert (await client.get(BOX + "/running")).content == b'{"running":false}'
    for _ in range(2):
        answer = await client.delete(BOX)
        assert (answer.status_code, answer.content) == (204, b"")
    assert world.runtime.starts == 0


async def test_fifty_creates_at_once_give_fifty_ids_and_start_nothing(
    client: httpx2.AsyncClient, world: World
) -> None:
    answers = await asyncio.gather(*(client.post("/v1/sandbox") for _ in range(50)))
    assert len({answer.json()["id"] for answer in answers}) == 50
    assert {answer.status_code for answer in answers} == {200}
    assert world.runtime.starts == 0


def asgi(engine: Engine, key: str | None) -> httpx2.AsyncClient:
    """A client from elsewhere with that key."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    transport = httpx2.ASGITransport(application(Desk(engine), Listener.NETWORK))
    return httpx2.AsyncClient(
        transport=transport, base_url="http://far.example/v1", headers=headers
    )


async def test_without_a_right_key_every_route_is_unauthorized(engine: Engine) -> None:
    for key in (None, "wrong"):
        async with asgi(engine, key) as client:
            for method, path in (
                ("POST", "/sandbox"),
                ("POST", "/sandbox/box/exec"),
                ("GET", "/sandbox/box/running"),
                ("DELETE", "/sandbox/box"),
                ("GET", "/pool/stats"),
                ("GET", "/openapi.json?token=wrong"),
                ("GET", "/nope"),
            ):
                answer = await client.request(method, path)
                assert error(answer) == (401, "unauthorized")
                assert answer.json()["error"] == "Unauthorized"


async def test_tenants_with_the_same_id_have_different_sandboxes(
    engine: Engine, world: World
) -> None:
    """And cannot tell whether somebody else uses the id."""
    mine, theirs = [
        await engine.keys.create(CreateKey(name=name, namespace=name))
        for name in ("mine", "theirs")
    ]
    async with asgi(engine, mine.key) as one, asgi(engine, theirs.key) as other:
        assert '{"exit_code":0}' in (await one.post("/sandbox/box/exec", json=EXEC)).text
        assert (await one.get("/sandbox/box/running")).json() == {"running": True}
        assert (await other.get("/sandbox/box/running")).json() == {"running": False}
        assert (await other.delete("/sandbox/box")).status_code == 204
        assert (await one.get("/sandbox/box/running")).json() == {"running": True}
        assert error(await one.get("/pool/stats")) == (403, "unauthorized")
    assert world.runtime.starts == 1


async def test_a_key_that_may_only_read_changes_nothing(engine: Engine, world: World) -> None:
    made = await engine.keys.create(CreateKey(name="r", scope=Scope.READ))
    async with asgi(engine, made.key) as client:
        assert error(await client.post("/sandbox/box/exec", json=EXEC)) == (403, "unauthorized")
        assert error(await client.put("/sandbox/box/file/workspace/x")) == (403, "unauthorized")
        assert error(await client.post("/pool/prime")) == (403, "unauthorized")
        assert (await client.get("/sandbox/box/running")).json() == {"running": False}
    assert world.runtime.starts == 0


async def test_the_document_takes_the_key_as_a_token(engine: Engine) -> None:
    made = await engine.keys.create(CreateKey(name="r", scope=Scope.READ))
    async with asgi(engine, None) as client:
        answer = await client.get(f"/openapi.json?token={made.key}")
        assert answer.json()["openapi"] == "3.1.0"
        page = await client.get(f"/openapi.html?token={made.key}")
        assert page.headers["content-type"].startswith("text/html")
        assert "/v1/sandbox/{id}/exec" in page.text
        elsewhere = await client.get(f"/sandbox/box/running?token={made.key}")
        assert error(elsewhere) == (401, "unauthorized")


async def test_changing_calls_are_on_record(client: httpx2.AsyncClient, engine: Engine) -> None:
    await client.post(BOX + "/exec", json=EXEC)
    await client.get(BOX + "/running")
    await client.delete(BOX)
    names = [record.operation for record in (await engine.audit.read(AuditQuery())).records]
    assert names == ["bridge.sandboxes.delete", "bridge.exec.run"]
