from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from atoll.engine.processes import records as rules
from atoll.engine.processes.records import ProcessRecord, Status
from atoll.errors import IdempotencyConflictError, ProcessAlreadyExistsError, StaleHandleError
from atoll.wire.process import StartProcessRequest
from atoll.wire.records import Exit

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def record(request: StartProcessRequest | None = None, **fields: Any) -> ProcessRecord:
    known: dict[str, Any] = {
        "uid": "u", "namespace": "N", "sandbox": "s", "layer_id": "l", "generation": 1, "id": "p",
        "request": request or StartProcessRequest(command="x"), "status": Status.RUNNING,
        "start_time": NOW,
    }  # fmt: skip
    return ProcessRecord(**known | fields)


@pytest.mark.parametrize(
    ("exit", "status", "reason"),
    [
        (Exit(exit_code=0), Status.COMPLETED, None),
        (Exit(exit_code=127), Status.FAILED, None),
        (Exit(exit_code=139, signal="SIGSEGV"), Status.FAILED, None),
        (Exit(exit_code=137, signal="SIGKILL", oom_killed=True), Status.FAILED, "oom"),
        (Exit(exit_code=2, pids_limited=True), Status.FAILED, "pids"),
        (Exit(exit_code=0, pids_limited=True), Status.COMPLETED, None),
        (Exit(exit_code=143, cancelled=True, reason="kill"), Status.KILLED, "kill"),
        (Exit(exit_code=0, cancelled=True, reason="kill"), Status.KILLED, "kill"),
        (Exit(exit_code=143, cancelled=True, reason="shutdown"), Status.KILLED, "sleep"),
        (Exit(exit_code=143, cancelled=True, reason="agent"), Status.KILLED, rules.GONE),
        (Exit(exit_code=143, timed_out=True, reason="timeout"), Status.KILLED, "timeout"),
    ],
)
def test_an_exit_becomes_a_status_and_a_reason(
    exit: Exit, status: Status, reason: str | None
) -> None:
    ended = rules.ended(record(), exit, NOW)
    assert (ended.status, ended.reason) == (status, reason)
    assert (ended.exit_code, ended.signal, ended.end_time) == (exit.exit_code, exit.signal, NOW)
    assert not ended.live


def test_a_loss_has_a_reason_and_never_a_code() -> None:
    lost = rules.lost(record(), Status.KILLED, rules.GONE, NOW)
    assert (lost.status, lost.exit_code, lost.reason) == (Status.KILLED, None, rules.GONE)


@pytest.mark.parametrize(
    ("restart", "status", "reason", "again"),
    [
        (True, Status.KILLED, rules.SLEEP, True),
        (True, Status.KILLED, rules.GONE, True),
        (True, Status.KILLED, "kill", False),
        (True, Status.COMPLETED, None, False),
        (False, Status.KILLED, rules.SLEEP, False),
    ],
)
def test_a_wake_restarts_only_what_the_sandbox_took_along(
    restart: bool, status: Status, reason: str | None, again: bool
) -> None:
    request = StartProcessRequest(command="x", restart=restart, session="s")
    assert rules.restarts(record(request, status=status, reason=reason)) is again


def test_an_id_is_free_when_nothing_runs_under_it() -> None:
    rules.check_free(None)
    rules.check_free(record(status=Status.FAILED))
    with pytest.raises(ProcessAlreadyExistsError):
        rules.check_free(record(status=Status.STARTING))


def test_a_handle_is_good_for_its_own_start_only() -> None:
    assert rules.check_handle(record(), None) == record()
    assert rules.check_handle(record(), "u") == record()
    with pytest.raises(StaleHandleError):
        rules.check_handle(record(), "other")


def test_a_repeated_call_is_the_same_request() -> None:
    first = record(StartProcessRequest(command="x", env={"A": "1"}), id="generated")
    assert rules.check_repeated(first, StartProcessRequest(command="x", env={"A": "1"})) is first
    for other in (
        StartProcessRequest(command="y", env={"A": "1"}),
        StartProcessRequest(command="x", env={"A": "1"}, process_id="named"),
    ):
        with pytest.raises(IdempotencyConflictError):
            rules.check_repeated(first, other)


def test_what_is_overdue_is_old_or_too_many_and_never_kept_on_request() -> None:
    def ended(minutes: int, *, auto: bool = True) -> ProcessRecord:
        request = StartProcessRequest(command="x", auto_cleanup=auto)
        at = NOW - timedelta(minutes=minutes)
        return record(request, uid=f"{minutes}{auto}", status=Status.COMPLETED, end_time=at)

    records = [ended(61), ended(59), ended(1), ended(90, auto=False), record()]
    old = rules.overdue(records, NOW, keep=3600, count=10)
    assert [r.uid for r in old] == ["61True"]
    many = rules.overdue(records, NOW, keep=1e6, count=1)
    assert [r.uid for r in many] == ["59True", "61True"]


def test_logs_of_finished_processes_give_way_first_and_the_oldest_of_them() -> None:
    running = record(uid="running", start_time=NOW - timedelta(hours=9))
    older = record(uid="older", status=Status.FAILED, end_time=NOW - timedelta(hours=2))
    newer = record(uid="newer", status=Status.FAILED, end_time=NOW)
    ordered = sorted([running, newer, older], key=rules.age)
    assert [r.uid for r in ordered] == ["older", "newer", "running"]


def test_a_young_process_is_waited_for_and_an_old_one_is_not() -> None:
    later = NOW + timedelta(seconds=0.05)
    assert rules.rest_of(record(), 0.2, later) == pytest.approx(0.15)
    assert rules.rest_of(record(), 0.2, NOW + timedelta(seconds=1)) == 0
    assert rules.rest_of(record(), 0.2, NOW - timedelta(days=1)) == 0.2, "the clock was set"


def test_the_agent_is_asked_for_a_quiet_detached_logged_command() -> None:
    header = rules.header(record(StartProcessRequest(command="x", timeout_ms=1500)), 1 << 20)
    assert (header["id"], header["detach"], header["quiet"]) == ("u", True, True)
    assert (header["log_limit"], header["timeout"], header["session"]) == (1 << 20, 1.5, None)


def test_callers_are_told_the_handle_of_this_start() -> None:
    info = record(pid=7).info()
    assert (info.id, info.handle, info.pid, info.command) == ("p", "u", 7, "x")
