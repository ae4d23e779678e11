from pathlib import Path

from atoll.host.budget import Budget
from atoll.network.gateway import sandbox
from atoll.network.gateway.protocol import Decision, Noticed, Put
from atoll.network.gateway.sandbox import Sandbox
from atoll.network.policy import Secret
from integration.network.gateway.harness import policy


def test_invented_addresses_are_kept_for_a_number_of_names(tmp_path: Path) -> None:
    told: list[Noticed] = []
    box = Sandbox(Put(policy=policy(), log="box"), tmp_path, Budget(0), Budget(0), told.append)
    first = box.invent("first.test")
    assert box.invent("first.test") == first
    others = {box.invent(f"n{number}.test") for number in range(sandbox.MAX_INVENTED)}
    assert len(others) == sandbox.MAX_INVENTED
    assert first not in others
    assert box.invent("first.test") != first


def test_decisions_are_counted(tmp_path: Path) -> None:
    told: list[Noticed] = []
    box = Sandbox(Put(policy=policy(), log="box"), tmp_path, Budget(0), Budget(0), told.append)
    for verdict in ("allowed", "failed", "refused", "handled"):
        box.note(Decision(time=1, protocol="tcp", verdict=verdict, rule="r", bytes_up=2))
    found = box.status()
    assert (found.allowed, found.refused, found.handled, found.bytes_up) == (2, 1, 1, 8)
    assert [(noticed.host_ref, noticed.decision.verdict) for noticed in told] == [
        ("box", "refused")
    ]
    box.close()


def test_the_engine_is_told_of_refusals_once_each_and_without_secrets(tmp_path: Path) -> None:
    told: list[Noticed] = []
    secret = Secret("KEY", "atoll_secret_1", ("a.test",), "v4lue")
    box = Sandbox(
        Put(policy=policy(secrets=(secret,)), log="box"),
        tmp_path,
        Budget(0),
        Budget(0),
        told.append,
    )
    for host in ("v4lue.test", "b.test", "b.test", "v4lue.test"):
        box.note(Decision(time=1, protocol="dns", verdict="refused", rule="r", host=host))
    assert len(told) == 2
    assert "v4lue" not in str(told)
    box.close()
