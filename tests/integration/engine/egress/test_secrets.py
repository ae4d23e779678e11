import asyncio

import pytest

from atoll.engine.egress import control
from atoll.engine.engine import Engine
from atoll.errors import (
    ForbiddenError,
    InvalidConfigError,
    SecretNotFoundError,
    ValidationFailedError,
)
from atoll.settings import PoolSettings
from atoll.wire.sandbox import NamespaceConfig, SandboxOptions
from atoll.wire.secrets import PutSecret, SecretUse
from atoll.wire.snapshots import Fork
from integration.engine.calling import run
from integration.engine.conftest import Opener
from integration.engine.scripted import Gateway, World

VALUE = "the-value-of-it"
USE = SecretUse(name="KEY", hosts=["API.test"])
OPTIONS = SandboxOptions(secrets={"API_KEY": USE})


@pytest.fixture
def gateway(world: World) -> Gateway:
    assert world.gateway
    return world.gateway


async def put(engine: Engine, value: str = VALUE, *hosts: str) -> None:
    await engine.secrets.put("N", "KEY", PutSecret(value=value, hosts=list(hosts)))
    await engine.apply_policies("N")


def told(engine: Engine, gateway: Gateway, id: str = "box") -> tuple[str, str]:
    """Return placeholder and value that the gateway has for the sandbox's one secret."""
    record = engine.sandbox("N", id).record
    assert record
    assert record.host_ref
    (secret,) = gateway.known[record.host_ref].policy.secrets
    assert (secret.name, secret.hosts) == ("KEY", ("api.test",))
    return secret.placeholder, secret.value


async def test_the_gateway_has_the_value_and_the_sandbox_a_placeholder(
    engine: Engine, world: World, gateway: Gateway
) -> None:
    await put(engine)
    await engine.sandbox("N", "box").configure(OPTIONS)
    await run(engine, "x")
    placeholder, value = told(engine, gateway)
    assert value == VALUE
    record = await engine.sandbox("N", "box").load()
    assert record
    assert record.in_force
    assert record.in_force.env["API_KEY"] == placeholder
    assert VALUE not in repr(record)
    for file in world.state_dir.rglob("*"):
        if file.is_file():
            assert VALUE.encode() not in file.read_bytes(), file


async def test_a_new_value_is_used_by_what_runs_and_a_deleted_one_by_nobody(
    engine: Engine, gateway: Gateway
) -> None:
    await put(engine)
    await engine.sandbox("N", "box").configure(OPTIONS)
    await run(engine, "x")
    placeholder, _ = told(engine, gateway)
    await put(engine, "another")
    assert told(engine, gateway) == (placeholder, "another")
    await put(engine, "another", "elsewhere.test")
    assert told(engine, gateway) == (placeholder, "")
    await engine.secrets.delete("N", "KEY")
    await engine.apply_policies("N")
    assert told(engine, gateway) == (placeholder, "")


async def test_nothing_starts_without_its_secret(engine: Engine, world: World) -> None:
    await engine.sandbox("N", "box").configure(OPTIONS)
    with pytest.raises(SecretNotFoundError) as missing:
        await run(engine, "x")
    assert "atoll secret put KEY --namespace N" in str(missing.value)
    await put(engine, VALUE, "other.test")
    with pytest.raises(ForbiddenError):
        await run(engine, "x")
    assert world.runtime.starts == 0
    await put(engine, VALUE, "*.test")
    await run(engine, "x")


async def test_a_placeholder_stays_over_a_sleep_and_a_fork_has_its_own(
    engine: Engine, gateway: Gateway
) -> None:
    await put(engine)
    box = engine.sandbox("N", "box")
    await box.configure(OPTIONS)
    await run(engine, "x")
    before, _ = told(engine, gateway)
    await box.stop()
    await run(engine, "x", op="again")
    assert told(engine, gateway)[0] == before
    await engine.forks.fork(box, Fork(id="other"))
    fork = await engine.sandbox("N", "other").load()
    assert fork
    assert before not in fork.egress.placeholders.values()


async def test_a_class_has_secrets_and_a_sandbox_takes_one_back(engine: Engine) -> None:
    await put(engine)
    await engine.configure_namespace("N", NamespaceConfig(secrets={"API_KEY": USE}))
    box = engine.sandbox("N", "box")
    await run(engine, "x")
    assert control.policy(box).secrets
    await box.configure(SandboxOptions(env={"API_KEY": "plain"}, secrets={}))
    record = await box.load()
    assert record
    assert record.in_force
    assert record.in_force.env["API_KEY"] == "plain"


@pytest.mark.parametrize(
    "uses",
    [
        {"A=B": USE},
        {"A": SecretUse(name="KEY", hosts=["http://a.test"])},
        {f"A{number}": USE for number in range(200)},
    ],
)
async def test_what_cannot_be_meant_is_refused(engine: Engine, uses: dict[str, SecretUse]) -> None:
    with pytest.raises(ValidationFailedError):
        await engine.sandbox("N", "box").configure(SandboxOptions(secrets=uses))


async def test_secrets_outlive_the_engine_and_are_of_their_namespace(
    opener: Opener, world: World
) -> None:
    async with opener() as engine:
        await put(engine)
    async with opener() as engine:
        assert [info.name for info in await engine.secrets.listing("N")] == ["KEY"]
        assert await engine.secrets.listing("M") == []
        with pytest.raises(SecretNotFoundError):
            engine.secrets.check("M", {"A": USE})
        engine.secrets.check("N", {"A": USE})
        (secret,) = engine.secrets.resolved("N", {"A": USE}, {"A": "placeholder"})
        assert secret.value == VALUE
    key = world.state_dir / "secrets.key"
    assert key.stat().st_mode & 0o777 == 0o600


async def test_without_its_key_nothing_is_lost_but_the_values(opener: Opener, world: World) -> None:
    async with opener() as engine:
        await put(engine)
    (world.state_dir / "secrets.key").unlink()
    async with opener() as engine:
        assert [info.name for info in await engine.secrets.listing("N")] == ["KEY"]
        await engine.sandbox("N", "box").configure(OPTIONS)
        with pytest.raises(InvalidConfigError, match="cannot be opened"):
            await run(engine, "x")
        await run(engine, "x", id="other", op="other")
        await put(engine)
        await run(engine, "x", op="again")


async def test_a_sandbox_with_a_secret_is_not_taken_from_the_pool(
    opener: Opener, world: World
) -> None:
    """What is warm does not trust the sandbox's authority."""
    async with opener(pool=PoolSettings(target=1, refresh_interval=0.05)) as engine:
        async with asyncio.timeout(5):
            while not engine.pool_stats().warm:
                await asyncio.sleep(0.005)
        await engine.sandbox("N", "box").configure(OPTIONS)
        with pytest.raises(SecretNotFoundError):
            await run(engine, "x")
        await put(engine)
        await run(engine, "x", op="again")
        assert engine.pool_stats().taken == 0
        record = await engine.sandbox("N", "box").load()
        assert record
        assert record.egress.authority


async def test_a_variable_that_is_text_here_needs_no_secret_of_the_class(engine: Engine) -> None:
    await engine.configure_namespace("N", NamespaceConfig(secrets={"API_KEY": USE}))
    box = engine.sandbox("N", "box")
    await box.configure(SandboxOptions(env={"API_KEY": "plain"}))
    await run(engine, "x")
    assert not control.policy(box).secrets


@pytest.mark.parametrize("name", ["", "a b", "1a", "a" * 101, "../a"])
async def test_a_name_is_one(engine: Engine, name: str) -> None:
    with pytest.raises(ValidationFailedError):
        await engine.secrets.put("N", name, PutSecret(value=VALUE))
