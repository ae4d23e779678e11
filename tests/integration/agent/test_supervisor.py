"""Connections of a command that break, and frames that make no sense."""

import time

import pytest

from atoll import errors
from atoll.wire.frames import Kind
from integration.agent.client import (
    Client,
    alive,
    control,
    eventually,
)


def agent_operation(agent: Client, id: str) -> dict[str, object]:
    operations = agent.call("operations")["operations"]
    found: dict[str, object] = next(entry for entry in operations if entry["id"] == id)
    return found


def test_a_dropped_connection_cancels_when_the_caller_has_no_id(agent: Client) -> None:
    with agent.start("sleep 600 & echo $!; wait", cancel_on_drop=True) as connection:
        pid = int(connection.until(Kind.STDOUT).payload[16:])
    eventually(lambda: not alive(pid))


def test_a_dropped_connection_without_a_cancel_ends_nothing(agent: Client) -> None:
    with agent.start("sleep 600 & echo $!; wait", id="kept") as connection:
        pid = int(connection.until(Kind.STDOUT).payload[16:])
    time.sleep(0.3)
    assert alive(pid)
    control(agent, "kept", (Kind.CANCEL, b""))
    eventually(lambda: not alive(pid))


def test_a_malformed_control_frame_harms_only_its_connection(agent: Client) -> None:
    with agent.start("sleep 0.5; echo fine", id="sturdy") as connection:
        for kind, payload in [
            (Kind.RESIZE, b"{"),
            (Kind.SIGNAL, b"[]"),
            (Kind.SIGNAL, b'{"signal":"X"}'),
        ]:
            with pytest.raises(errors.ValidationFailedError):
                control(agent, "sturdy", (kind, payload))
        assert connection.result().stdout == b"fine\n"
