import atoll
from integration.sdk.engine_double import Answer, EngineDouble


async def test_hooks_that_a_class_does_not_have_do_nothing(sandbox: atoll.Sandbox) -> None:
    await sandbox.on_start()
    await sandbox.on_stop({"reason": "idle"})
    await sandbox.on_error(atoll.SandboxError("x"))
    assert sandbox.required_ports == ()


async def test_an_idle_sandbox_stops_unless_its_class_says_otherwise(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script("POST /stop", Answer(INFO))
    await sandbox.on_activity_expired()
    assert len(engine.requests("POST /stop")) == 1


INFO = b"""{"id": "box", "namespace": "Sandbox", "state": "stopped", "generation": 1, "image": "a",
 "instanceType": "lite", "isolation": "fake", "runtime": "fake", "wanted": {},
 "limits": {"memory": 1, "cpu": 1, "disk": 1, "pids": 1}, "createdAt": "2024-01-01T00:00:00Z"}"""
