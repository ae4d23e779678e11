import pytest

from atoll.engine.commands.operations import Listed
from atoll.errors import ContainerUnavailableError
from atoll.server.bridge.terminals import MAX_TERMINALS, choose


def test_without_a_session_every_terminal_is_another() -> None:
    first, second = choose(None, []), choose(None, [])
    assert first.id != second.id
    assert not first.runs


def test_callers_of_a_session_choose_the_same_terminal() -> None:
    first = choose("s", [])
    assert choose("s", []) == first
    assert choose("t", []).id != first.id
    again = choose("s", [Listed(id=first.id, running=True)])
    assert (again.id, again.runs) == (first.id, True)


def test_a_session_whose_terminal_ended_gets_a_new_one() -> None:
    first = choose("s", [])
    second = choose("s", [Listed(id=first.id, running=False)])
    assert (second.runs, second.id == first.id) == (False, False)
    third = choose("s", [Listed(id=second.id, running=False)])
    assert third.id not in {first.id, second.id}


def test_a_sandbox_has_so_many_terminals_and_no_more() -> None:
    """Those of other operations do not count, and a running one can always be joined."""
    mine = choose("s", [])
    listed = [Listed(id="exec", running=True), Listed(id=mine.id, running=True)]
    listed += [Listed(id=f"pty:{n}", running=True) for n in range(MAX_TERMINALS - 1)]
    assert choose("s", listed).runs
    with pytest.raises(ContainerUnavailableError):
        choose(None, listed)
