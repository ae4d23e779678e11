"""How process trees are ended."""

import time

from atoll.wire.frames import Kind
from integration.agent.client import Client, alive


def test_a_timeout_ends_the_whole_tree(agent: Client) -> None:
    """X07, S04: also what left its session, forked twice, or ignores TERM."""
    late = agent.directory / "late"
    text = f"""trap '' TERM
    echo partial
    setsid bash -c "trap '' TERM; sleep 3; touch {late}" &
    (bash -c "trap '' TERM; sleep 3; touch {late}" &)
    sleep 3; touch {late}"""
    result = agent.exec(text, timeout=0.3)
    assert result.record["timed_out"]
    assert result.stdout == b"partial\n"
    assert agent.exec("echo ok").stdout == b"ok\n"
    assert agent.exec(f"pgrep -fc 'touch {late}$'").stdout == b"0\n"


def test_a_timeout_lets_a_command_say_goodbye(agent: Client) -> None:
    result = agent.exec("trap 'echo bye; exit 3' TERM; sleep 30 & wait", timeout=0.3)
    assert (result.stdout, result.code, result.record["timed_out"]) == (b"bye\n", 3, True)


def test_cancel_ends_the_tree_within_a_second(agent: Client) -> None:
    """X08."""
    with agent.start("trap '' TERM; sleep 600 & echo $!; sleep 600; sleep 600") as connection:
        pid = int(connection.until(Kind.STDOUT).payload[16:])
        began = time.monotonic()
        connection.send(Kind.CANCEL)
        result = connection.result()
    assert result.record["cancelled"]
    assert time.monotonic() - began < 5
    assert not alive(pid)
