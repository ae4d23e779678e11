import httpx2
import pytest
import structlog

from atoll.engine.engine import Engine
from atoll.errors import ContainerUnavailableError, MaxInstancesExceededError
from atoll.server import gate, logs
from atoll.server.app import application
from atoll.server.auth import Listener
from atoll.server.gate import Desk
from atoll.wire.keys import CreateKey, Scope
from integration.engine.scripted import World
from integration.server.conftest import BOX


async def error(answer: httpx2.Response) -> tuple[int, str]:
    body = answer.json()
    assert {"code", "message", "context", "httpStatus", "suggestion", "timestamp", "requestId"} <= {
        *body
    }
    assert body["httpStatus"] == answer.status_code
    assert body["requestId"] == answer.headers["x-request-id"]
    return answer.status_code, body["code"]


async def test_health_and_version(client: httpx2.AsyncClient, engine: Engine) -> None:
    assert (await client.get("/health")).json() == {"ok": True}
    assert (await client.get("/v2/version")).json()["engineId"] == engine.id


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", "/v2/nope", None, (404, "ROUTE_NOT_FOUND")),
        ("PATCH", BOX, None, (405, "ROUTE_NOT_FOUND")),
        ("GET", BOX + "/", None, (404, "ROUTE_NOT_FOUND")),
        ("PUT", "/v2/namespaces/N/sandboxes/-box", b"{}", (400, "INVALID_SANDBOX_ID")),
        ("PUT", "/v2/namespaces/N/sandboxes/www", b"{}", (400, "INVALID_SANDBOX_ID")),
        ("PUT", "/v2/namespaces/N!/sandboxes/box", b"{}", (400, "VALIDATION_FAILED")),
        ("PUT", BOX, b"{", (400, "VALIDATION_FAILED")),
        ("PUT", BOX, b"[]", (400, "VALIDATION_FAILED")),
        ("PUT", BOX, b'{"sleepAfterr": 1}', (400, "VALIDATION_FAILED")),
        ("PUT", BOX, b'{"labels": 7}', (400, "VALIDATION_FAILED")),
        ("PUT", BOX, b'{"instanceType": "huge"}', (400, "VALIDATION_FAILED")),
        ("PUT", BOX, b"[" * 200_000, (400, "VALIDATION_FAILED")),
        ("GET", BOX, None, (404, "SANDBOX_NOT_FOUND")),
        ("GET", BOX + "?x=1", None, (400, "VALIDATION_FAILED")),
        ("GET", "/v2/namespaces/N/sandboxes?limit=x", None, (400, "VALIDATION_FAILED")),
        ("GET", "/v2/namespaces/N/sandboxes?limit=1&limit=2", None, (400, "VALIDATION_FAILED")),
        ("GET", "/v2/namespaces/N/sandboxes?state=nope", None, (400, "VALIDATION_FAILED")),
        ("POST", BOX + "/exec", b'{"command": ""}', (400, "INVALID_COMMAND")),
        ("POST", BOX + "/exec", b'{"command": []}', (400, "INVALID_COMMAND")),
        ("POST", BOX + "/exec", b'{"command": "a\\u0000b"}', (400, "INVALID_COMMAND")),
        ("POST", BOX + "/exec", b"{}", (400, "VALIDATION_FAILED")),
        ("GET", BOX + "/operations/op", None, (404, "OPERATION_NOT_FOUND")),
        ("DELETE", BOX + "/operations/op", None, (404, "OPERATION_NOT_FOUND")),
    ],
)
async def test_bad_requests_are_typed_and_start_nothing(
    client: httpx2.AsyncClient,
    world: World,
    method: str,
    path: str,
    body: bytes | None,
    expected: tuple[int, str],
) -> None:
    answer = await client.request(method, path, content=body)
    assert await error(answer) == expected
    assert world.runtime.starts == 0


async def test_a_body_over_the_limit_is_refused(client: httpx2.AsyncClient, engine: Engine) -> None:
    huge = b" " * (engine.settings.server.max_body + 1)
    assert await error(await client.put(BOX, content=huge)) == (413, "FILE_TOO_LARGE")


async def test_retryable_errors_say_when(client: httpx2.AsyncClient, world: World) -> None:
    refusal = MaxInstancesExceededError("full", retry_after=5.0)
    world.runtime.failures["start"] = refusal
    answer = await client.post(BOX + "/start")
    assert await error(answer) == (503, "MAX_INSTANCES_EXCEEDED")
    assert answer.headers["retry-after"] == "5"
    assert answer.json()["retryAfter"] == 5.0


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"image": "BAD IMAGE"}, "INVALID_IMAGE"),
        ({"instanceType": "huge"}, "VALIDATION_FAILED"),
        ({"runtime": "nope"}, "RUNTIME_NOT_AVAILABLE"),
        ({"labels": {"a=b": "c"}}, "VALIDATION_FAILED"),
        ({"volumes": {"data": "v"}}, "VALIDATION_FAILED"),
        ({"ttl": 1 << 62}, "VALIDATION_FAILED"),
    ],
)
async def test_options_that_cannot_work_change_nothing_of_a_running_sandbox(
    client: httpx2.AsyncClient, options: dict[str, object], code: str
) -> None:
    before = (await client.post(BOX + "/start")).json()
    answer = await client.put(BOX, json=options | {"sleepAfter": 1})
    assert (await error(answer))[1] == code
    assert (await client.get(BOX)).json()["wanted"] == before["wanted"]


async def test_a_fault_of_the_engine_tells_the_caller_nothing_but_an_id(
    client: httpx2.AsyncClient, world: World
) -> None:
    world.runtime.failures["start"] = RuntimeError("/secret/path")
    with structlog.testing.capture_logs() as logs:
        answer = await client.post(BOX + "/start", headers={"x-request-id": "mine"})
    assert await error(answer) == (500, "INTERNAL_ERROR")
    assert "secret" not in answer.text
    assert answer.json()["requestId"] == "mine"
    logged = [entry for entry in logs if entry["event"] == "request failed"]
    assert str(logged[0]["exc_info"]) == "/secret/path"


async def test_a_request_id_that_could_break_the_log_is_replaced(
    client: httpx2.AsyncClient,
) -> None:
    answer = await client.get("/health", headers={"x-request-id": "a b"})
    assert answer.headers["x-request-id"] != "a b"


async def test_a_sandbox_lives_through_http(client: httpx2.AsyncClient, world: World) -> None:
    created = await client.put(BOX, json={"labels": {"team": "a"}})
    assert created.json()["state"] == "created"
    assert (await client.post(BOX + "/start")).json()["state"] == "running"
    page = await client.get("/v2/namespaces/N/sandboxes", params={"labels": "team=a"})
    assert [found["id"] for found in page.json()["sandboxes"]] == ["box"]
    none = await client.get("/v2/namespaces/N/sandboxes", params={"labels": "team=b"})
    assert none.json() == {"sandboxes": [], "cursor": None}
    assert (await client.post(BOX + "/stop")).json()["state"] == "stopped"
    for _ in range(2):
        assert (await client.delete(BOX)).json() == {"success": True}
    assert (await client.get(BOX)).status_code == 404
    assert world.left() == {}


async def test_namespaces_have_defaults(client: httpx2.AsyncClient) -> None:
    config = {"instanceType": "basic", "maxInstances": 1}
    assert (await client.put("/v2/namespaces/N", json=config)).status_code == 200
    assert (await client.put(BOX, json={})).json()["instanceType"] == "basic"


async def test_a_failed_start_says_which_step(client: httpx2.AsyncClient, world: World) -> None:
    world.networks.failure = ContainerUnavailableError(context={"reason": "network"})
    body = (await client.post(BOX + "/start")).json()
    assert body["context"] == {"reason": "network", "step": "network"}


async def test_keys_guard_every_route_but_health(engine: Engine) -> None:
    key = (await engine.keys.create(CreateKey(name="k", scope=Scope.READ, namespace="N"))).key
    transport = httpx2.ASGITransport(application(Desk(engine), Listener.LOOPBACK))
    async with httpx2.AsyncClient(transport=transport, base_url="http://far.example") as client:
        assert (await client.get("/health")).status_code == 200
        assert await error(await client.get(BOX)) == (401, "UNAUTHORIZED")
        client.headers["authorization"] = f"Bearer {key}"
        assert await error(await client.get(BOX)) == (404, "SANDBOX_NOT_FOUND")
        assert await error(await client.put(BOX, json={})) == (403, "FORBIDDEN")
        other = "/v2/namespaces/M/sandboxes/box"
        assert await error(await client.get(other)) == (404, "SANDBOX_NOT_FOUND")
        assert await error(await client.put(other, json={})) == (404, "SANDBOX_NOT_FOUND")


async def test_a_call_that_is_sent_again_changes_nothing(
    client: httpx2.AsyncClient, world: World
) -> None:
    key = {"idempotency-key": "k1"}
    assert (await client.post(BOX + "/start", headers=key)).json()["generation"] == 1
    assert (await client.delete(BOX, headers={"idempotency-key": "k2"})).is_success
    again = await client.post(BOX + "/start", headers=key)
    assert (again.json()["generation"], world.runtime.starts) == (1, 1)
    other = await client.post(BOX + "/stop", headers=key)
    assert await error(other) == (409, "IDEMPOTENCY_CONFLICT")


HUGE = 10**30


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "", {"ttl": 10**18}),
        ("PUT", "", {"sleepAfter": 1 << 63}),
        ("PUT", "", {"queue": -1}),
        ("PUT", "", {"queue": HUGE}),
        ("PUT", "", {"instanceType": {"vcpu": 1e308, "memoryMib": 64, "diskMb": 100}}),
        ("PUT", "", {"instanceType": {"vcpu": 1, "memoryMib": 10**18, "diskMb": 100}}),
        ("PUT", "", {"instanceType": {"vcpu": 1, "memoryMib": HUGE, "diskMb": 100}}),
        ("POST", "/exec", {"command": "true", "timeout": HUGE}),
        ("POST", "/exec", {"command": "true", "cols": HUGE, "pty": True}),
        ("POST", "/processes", {"command": "true", "timeout": HUGE}),
        ("POST", "/files/mkdir", {"path": "/tmp/a", "mode": HUGE}),
        ("PUT", "", {"env": {"A": "x" * 2_000_000}}),
        ("POST", "/env", {"env": {"A": "x" * 2_000_000}}),
        ("PUT", "", {"labels": {"a": "x" * 100_000}}),
    ],
)
async def test_what_no_sandbox_can_be_given_is_the_callers_fault(
    client: httpx2.AsyncClient, method: str, path: str, body: dict[str, object]
) -> None:
    answer = await client.request(method, BOX + path, json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_FAILED")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/files/mkdir", {"path": "/tmp/" + "a" * 9_000_000}),
        ("/exec", {"command": "true", "env": {"A": "a" * 9_000_000}}),
    ],
)
async def test_what_is_too_large_for_the_agent_is_refused(
    client: httpx2.AsyncClient, path: str, body: dict[str, object]
) -> None:
    answer = await client.post(BOX + path, json=body)
    assert (answer.status_code, answer.json()["code"]) == (413, "FILE_TOO_LARGE")


CANARY = "".join(map(chr, range(97, 117)))


@pytest.mark.parametrize(
    ("operation", "path", "body"),
    [
        ("ensure", "", {"env": {"TOKEN": CANARY}}),
        ("exec", "/exec", {"command": "cat", "env": {"TOKEN": CANARY}}),
        ("set_env", "/env", {"env": {"TOKEN": CANARY}}),
    ],
)
async def test_a_fault_of_the_engine_writes_no_value_of_a_request_to_the_log(
    client: httpx2.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    operation: str,
    path: str,
    body: dict[str, object],
) -> None:
    def broken(*_args: object, **_fields: object) -> object:
        raise RuntimeError("a fault")

    place = {
        "ensure": "atoll.engine.sandbox.Sandbox.configure",
        "exec": "atoll.engine.commands.calls.exec",
        "set_env": "atoll.engine.sandbox.Sandbox.set_env",
    }
    monkeypatch.setattr(place[operation], broken)
    logs.configure("debug", "pretty")
    monkeypatch.setattr(gate, "log", structlog.get_logger())
    try:
        answer = await client.request(
            "PUT" if operation == "ensure" else "POST",
            BOX + path,
            json=body,
            headers={"authorization": f"Bearer {CANARY}"},
        )
    finally:
        structlog.reset_defaults()
    shown = capsys.readouterr().err
    assert (answer.status_code, CANARY in answer.text) == (500, False)
    assert "RuntimeError: a fault" in shown
    assert CANARY not in shown
