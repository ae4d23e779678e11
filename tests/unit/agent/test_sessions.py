import json
import os
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from atoll import errors
from atoll.agent import sessions as module
from atoll.agent.descriptors import read_all, spill
from atoll.agent.sessions import MAX_SESSIONS, MAX_STATES, SMALL_STATE, Sessions
from atoll.wire.frames import MAX_FRAME, Kind, encode_json
from atoll.wire.process import SessionInfo

NOW = "2026-01-01T00:00:00Z"


def made() -> Sessions:
    return Sessions("/workspace", os.close)


def test_a_session_has_the_workdir_and_its_own_fields() -> None:
    sessions = made()
    assert sessions.create({"id": "a", "name": "n", "cwd": "/x", "user": "dev"}, NOW).describe() == {
        "id": "a", "name": "n", "cwd": "/x", "user": "dev", "isolation": False, "createdAt": NOW,
        "commandTimeout": None,
    }  # fmt: skip
    assert sessions.create({"id": "b"}, NOW).cwd == "/workspace"


def test_callers_are_told_every_field_there_is_for_them() -> None:
    """A handle takes the time limit of its commands from this."""
    wanted = {"id": "a", "isolation": True, "command_timeout": 1.5}
    told = made().create(wanted, NOW).describe()
    fields = {field.encode_name for field in msgspec.structs.fields(SessionInfo)}
    assert told.keys() == fields - {"life"}  # which the server adds
    assert msgspec.convert(told, SessionInfo).command_timeout_ms == 1_500


@pytest.mark.parametrize(
    "fields",
    [
        {"id": ""}, {"id": None}, {"id": 3}, {"id": "x" * 201}, {"id": "a", "cwd": "relative"},
        {"id": "a", "cwd": "/\0"}, {"id": "a", "env": ["x"]}, {"id": "a", "env": {"=": ""}},
        {"id": "a", "user": 0},
    ],
)  # fmt: skip
def test_a_wrong_field_makes_no_session(fields: dict[str, Any]) -> None:
    sessions = made()
    with pytest.raises(errors.ValidationFailedError):
        sessions.create(fields, NOW)
    assert list(sessions) == []


def test_there_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SESSIONS", 1)
    sessions = made()
    sessions.create({"id": "a"}, NOW)
    with pytest.raises(errors.ResourceBusyError):
        sessions.create({"id": "b"}, NOW)


def test_only_the_default_session_makes_itself() -> None:
    sessions = made()
    assert sessions.use("default", NOW) is sessions.use("default", NOW)
    with pytest.raises(errors.SessionNotFoundError):
        sessions.use("other", NOW)


def test_variables_come_in_layers() -> None:
    """Start environment < sandbox < session's creation < set on the session."""
    sessions = made()
    session = sessions.create({"id": "a", "env": {"C": "created", "D": "created"}}, NOW)
    sessions.set_env(None, {"B": "all", "C": "all", "D": "all", "A": None})
    sessions.set_env("a", {"D": "set"})
    start = {"A": "start", "B": "start", "Z": "start"}
    assert sessions.variables(session, start) == {
        "B": "all", "C": "created", "D": "set", "Z": "start",
    }  # fmt: skip
    assert sessions.variables(None, start) == {"B": "all", "C": "all", "D": "all", "Z": "start"}


def test_changes_wait_for_the_next_saved_state() -> None:
    sessions = made()
    session = sessions.create({"id": "a", "env": {"OWN": "1"}}, NOW)
    sessions.set_env(None, {"OWN": "2", "ALL": "2"})
    sessions.set_env("a", {"X": None})
    assert session.pending == {"ALL": "2", "X": None}
    sessions.save(session, spill(b"{}"), "/tmp")
    assert (session.pending, session.here) == ({}, "/tmp")


def test_a_replaced_or_ended_state_is_released() -> None:
    released: list[int] = []
    sessions = Sessions("/w", released.append)
    session = sessions.create({"id": "a"}, NOW)
    first, second, third = (spill(b"{}") for _ in range(3))
    sessions.save(session, first, "/x")
    sessions.save(session, second, "/y")
    sessions.end_shell(session)
    assert (released, session.state, session.here) == ([first, second], None, "/w")
    sessions.save(session, third, "/z")
    assert sessions.delete("a") is session
    assert released == [first, second, third]
    for fd in released:
        os.close(fd)
    assert not sessions.exists(session)


def test_an_export_comes_back_whole() -> None:
    old, new = made(), made()
    old.set_env(None, {"ALL": "1"})
    session = old.create({"id": "a", "env": {"E": None}, "cwd": "/c", "isolation": True}, "then")
    old.set_env("a", {"S": "2"})
    old.save(session, spill(b'{"plain": 1}'), "/here")
    old.save(old.create({"id": "b"}, NOW), spill(b"\x78\xff\x00"), "/there")
    new.create({"id": "a"}, NOW)
    new.restore(old.export(), NOW)
    assert {one.id: one.record() for one in new} == {one.id: one.record() for one in old}
    assert new.env == old.env
    states = [new.get(id).state for id in "ab"]
    assert [read_all(fd) for fd in states if fd is not None] == [b'{"plain": 1}', b"\x78\xff\x00"]
    for one in [*old, *new]:
        if one.state is not None:
            os.close(one.state)


def test_states_that_do_not_fit_are_left_out_and_the_largest_first() -> None:
    sessions = made()
    for id, size in [("large", 900), ("small", 30)]:
        state = spill(b"{" + b" " * size)
        sessions.save(sessions.create({"id": id}, NOW), state, "/moved")
    records = {one["id"]: one for one in sessions.export(budget=800)["sessions"]}
    assert records["small"]["state"]
    assert records["large"]["state"] is None
    fresh = made()
    fresh.restore({"sessions": list(records.values())}, NOW)
    assert [fresh.get(id).here for id in ("large", "small")] == ["/workspace", "/moved"]
    for one in [*sessions, *fresh]:
        if one.state is not None:
            os.close(one.state)


def fits_a_frame(sessions: Sessions) -> bool:
    return len(encode_json(Kind.REPLY, sessions.export())) <= MAX_FRAME


@pytest.mark.parametrize("text", ['"', "\x01", "é", "\U0001f3dd"])
def test_whatever_shells_leave_an_export_fits_a_frame(text: str) -> None:
    """Or one shell that wants to takes the state of all others with it at the next sleep."""
    sessions = Sessions("/w", os.close)
    state = json.dumps({"variables": text * 8_000}).encode()
    for number in range(250):
        sessions.save(sessions.create({"id": str(number)}, NOW), spill(state), "/" + text * 4_000)
    assert fits_a_frame(sessions)
    for session in sessions:
        if session.state is not None:
            os.close(session.state)


def until_there_is_no_room(act: Callable[[int], object]) -> None:
    for number in range(MAX_SESSIONS):
        act(number)


def test_whatever_callers_set_an_export_fits_a_frame() -> None:
    sessions = Sessions("/w", os.close)
    for act in (
        lambda n: sessions.create({"id": f"c{n}", "env": {"A": "x" * 20_000}}, NOW),
        lambda n: sessions.set_env("c0", {f"B{n}": "é" * 10_000}),
        lambda n: sessions.set_env(None, {f"C{n}": "x" * 100}),
    ):
        with pytest.raises(errors.ResourceBusyError, match="variables of all sessions"):
            until_there_is_no_room(act)
    assert fits_a_frame(sessions)
    fresh = Sessions("/w", os.close)
    fresh.restore(sessions.export(), NOW)
    assert {one.id: one.record() for one in fresh} == {one.id: one.record() for one in sessions}


def test_variables_that_are_set_again_and_again_are_set() -> None:
    sessions = made()
    for number in range(1_000):
        sessions.set_env(None, {"A": f"{number:010000}"})
    assert sessions.env == {"A": f"{999:010000}"}


@pytest.mark.parametrize(
    "body",
    [{"sessions": 3}, {"sessions": [3]}, {"sessions": [{}]}, {"env": 3}, {"sessions": [{"id": "a", "state": "?"}]}],
)  # fmt: skip
def test_a_damaged_export_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(errors.ValidationFailedError):
        made().restore(body, NOW)


def test_all_states_together_stay_within_a_limit() -> None:
    """Memory files of the router are the agent's own memory, and there may be 1,000 sessions."""
    sessions = Sessions("/w", os.close)
    total = 0
    for number in range(MAX_SESSIONS):
        total += sessions.reserve(sessions.create({"id": str(number)}, NOW))
    assert total <= MAX_STATES + MAX_SESSIONS * SMALL_STATE
    assert sessions.reserve(sessions.get("0")) >= SMALL_STATE


def test_a_state_that_fitted_once_fits_again() -> None:
    sessions = Sessions("/w", os.close)
    session = sessions.create({"id": "a"}, NOW)
    first = sessions.reserve(session)
    assert first == MAX_STATES // 4
    sessions.save(session, spill(b"x" * 100_000), "/w")
    assert sessions.reserve(session) > 100_000
    sessions.delete("a")
