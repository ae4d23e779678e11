"""Starts that hang or go wrong, in a process of their own: a command ends all below its process."""

import json
import os
import time
from collections.abc import Mapping
from typing import Any

import pytest

from atoll import errors
from atoll.agent import launch, users
from atoll.agent.command import Command
from atoll.agent.config import Config
from atoll.agent.devices import open_devices
from atoll.agent.launch import Context
from atoll.agent.loop import Loop
from atoll.agent.output import Output

HERE = Context({}, "/", "/", f"{os.getuid()}:{os.getgid()}", session=False, pending={}, state=None)


def fail(*_: object) -> None:
    raise OSError(12, "Cannot allocate memory")


def outcome(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return the exit record or the error of a command, once nothing of it is left."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(writer, json.dumps(_run(header)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    os.waitpid(pid, 0)
    return found


def _run(header: Mapping[str, Any]) -> Any:
    loop, outcomes = Loop(), list[Any]()
    starved = header.get("starved", 0)
    command = Command(
        loop,
        Config(confine=False, devices=open_devices()),
        Output(lambda *_: None),
        on_started=lambda _: None,
        on_outcome=lambda outcome, _: outcomes.append(outcome),
        on_childless=lambda: None,
        on_room=lambda: None,
    )
    command.accept({"command": ["sleep", "60"], **header})
    command.begin(HERE)
    end = time.monotonic() + 10
    while not (outcomes and command.idle) and time.monotonic() < end:
        loop.later(0.05, lambda: None)
        loop.step()
        if starved and command._status is not None:
            time.sleep(starved)
            starved = 0
    (found,) = outcomes
    return found.to_wire() if isinstance(found, errors.SandboxError) else found


def test_a_directory_that_hangs_is_timed_out_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be on a mount whose server has gone: the time counts from the request on."""
    monkeypatch.setattr(os, "chdir", lambda _: time.sleep(60))
    record = outcome({"timeout": 0.2})
    assert (record["timed_out"], record["signal"]) == (True, "SIGTERM")


def test_whatever_goes_wrong_before_a_start_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "read", fail)
    assert outcome({})["code"] == "INTERNAL_ERROR"


def test_a_start_that_fails_halfway_leaves_nothing_running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch.Plan, "close", fail)
    assert outcome({})["code"] == "INTERNAL_ERROR"


def test_what_was_written_in_time_counts_however_late_it_is_read() -> None:
    """The supervisor gets no CPU between the exit and the end of the time for background output."""
    text = "echo first; (sleep 0.05; head -c 3000000 /dev/zero) & exit 0"
    grown = "import fcntl; fcntl.fcntl(1, 1031, 1 << 20)"
    record = outcome({"command": ["sh", "-c", f"python3 -c '{grown}'; {text}"], "starved": 0.6})
    assert record["exit_code"] == 0
    assert record["stdout_bytes"] >= len("first\n") + (1 << 20) - 4096
