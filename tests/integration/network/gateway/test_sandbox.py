from pathlib import Path

from atoll.host.budget import Budget
from atoll.network.gateway import sandbox
from atoll.network.gateway.protocol import Decision, Put
from atoll.network.gateway.sandbox import Sandbox
from integration.network.gateway.harness import policy


def test_invented_addresses_are_kept_for_a_number_of_names(tmp_path: Path) -> None:
    box = Sandbox(Put(policy=policy(), log="box"), tmp_path, Budget(0))
    first = box.invent("first.test")
    assert box.invent("first.test") == first
    others = {box.invent(f"n{number}.test") for number in range(sandbox.MAX_INVENTED)}
    assert len(others) == sandbox.MAX_INVENTED
    assert first not in others
    assert box.invent("first.test") != first


def test_decisions_are_counted(tmp_path: Path) -> None:
    box = Sandbox(Put(policy=policy(), log="box"), tmp_path, Budget(0))
    for verdict in ("allowed", "failed", "refused", "handled"):
        box.note(Decision(time=1, protocol="tcp", verdict=verdict, rule="r", bytes_up=2))
    found = box.status()
    assert (found.allowed, found.refused, found.handled, found.bytes_up) == (2, 1, 1, 8)
    box.close()
