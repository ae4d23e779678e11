import pytest

from atoll import errors
from atoll.agent import operations
from atoll.agent.operations import Operation, Operations, check_id


def ended(known: Operations, id: str, now: float, tail: bytes = b"", fd: int | None = None) -> None:
    operation = Operation(id, None, 0)
    known.add(operation)
    operation.tail, operation.tail_fd, operation.size = tail, fd, len(tail) or (fd or 0)
    operation.last = b"last"
    known.end(operation, now)


def test_a_running_operation_is_never_forgotten() -> None:
    known = Operations(lambda _: None)
    known.add(Operation("a", None, 0))
    known.expire(1e9)
    assert known.get("a")


def test_the_output_goes_after_a_minute_and_the_outcome_after_ten() -> None:
    released: list[int] = []
    known = Operations(released.append)
    ended(known, "a", 0, fd=9)
    known.expire(59)
    assert released == []
    known.expire(61)
    operation = known.get("a")
    assert operation
    assert (released, operation.last, operation.tail_fd) == ([9], b"last", None)
    known.expire(601)
    assert known.get("a") is None


def test_outputs_are_dropped_oldest_first_when_they_are_too_large_together() -> None:
    known = Operations(lambda _: None)
    half = operations.KEEP_BYTES // 2
    for id in "abc":
        ended(known, id, 0, tail=b"x" * half)
    kept = {id: bool(found.tail) for id in "abc" if (found := known.get(id))}
    assert kept == {"a": False, "b": True, "c": True}


def test_only_so_many_outcomes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "KEEP_COUNT", 3)
    known = Operations(lambda _: None)
    for id in "abcde":
        ended(known, id, 0)
    assert [operation.id for operation in known] == ["c", "d", "e"]


@pytest.mark.parametrize("id", [None, "", "x" * 201, 7, ["a"]])
def test_a_wrong_id_is_refused(id: object) -> None:
    with pytest.raises(errors.ValidationFailedError):
        check_id(id)


def test_an_operation_describes_itself() -> None:
    assert Operation("a", None, 0).describe() == {
        "id": "a", "kind": "exec", "session": None, "pid": None, "running": True, "detach": False,
    }  # fmt: skip
