"""What one engine writes, the others go by."""

from atoll.wire.keys import CreateKey
from atoll.wire.ports import ExposePort
from atoll.wire.sandbox import NamespaceConfig
from integration.engine.cluster.replicas import Pair, until


async def test_a_port_exposed_by_one_is_served_and_revoked_by_all(pair: Pair) -> None:
    first, second = pair
    exposed = await first.ports.expose(first.sandbox("n", "box"), ExposePort(port=8080))
    key = ("n", "box", 8080)
    await until(lambda: (found := second.ports.of(key)) and found.active())
    assert second.ports.of(key).exposure.token == exposed.token  # type: ignore[union-attr]
    await second.ports.unexpose(second.sandbox("n", "box"), 8080)
    await until(lambda: first.ports.of(key) is None)


async def test_a_key_made_by_one_opens_all_and_is_closed_for_all(pair: Pair) -> None:
    first, second = pair
    made = await first.keys.create(CreateKey(name="k"))
    await until(lambda: second.keys.holder(made.key))
    await second.keys.revoke(made.info.id)
    await until(lambda: first.keys.holder(made.key) is None)


async def test_defaults_of_a_namespace_hold_at_all_engines(pair: Pair) -> None:
    first, second = pair
    await first.configure_namespace("n", NamespaceConfig(env={"A": "1"}))
    await until(lambda: "n" in second.namespaces and second.namespaces["n"].env == {"A": "1"})
