"""From a dump to the state, without a shell."""

import json
from typing import Any

import pytest

from atoll.agent.shell.dumps import Dump, Settings, Variable
from atoll.agent.shell.quoting import MalformedError
from atoll.agent.shell.states import State, assign, empty_state, expands_aliases, state_of

FRESH = Settings(
    {
        "IFS": Variable("", b" \t\n"),
        "HOME": Variable("x", b"/root"),
        "PWD": Variable("x", b"/tmp"),
        "UID": Variable("ir", b"0"),
    },
    frozenset({"braceexpand"}),
    frozenset({"sourcepath"}),
    "0022",
    {"n": ("1024", "4096")},
)
ENV = {"HOME": "/root"}


def dump_of(fresh: Settings | None = FRESH, **changes: Any) -> Dump:
    settings = {name: changes.pop(name) for name in list(changes) if name in Settings._fields}
    base = Dump(fresh, FRESH._replace(**settings), [], [b"/tmp"], {}, [], {}, {})
    return base._replace(**changes)


def after(before: State | None = None, borrowed: tuple[str, ...] = (), **changes: Any) -> State:
    start = before or empty_state("/")
    fresh = None if start["fresh"] else FRESH
    dump = dump_of(fresh, **changes)
    return state_of(dump, start, env=ENV, borrowed=borrowed, ours="_ours")


def variables(**values: Variable) -> dict[str, Variable]:
    return FRESH.variables | values


def test_a_shell_nothing_was_done_to_has_an_empty_state() -> None:
    state = after()
    assert {name for name, value in state.items() if value} == {"fresh", "cwd"}


def test_only_differences_are_kept_and_never_what_bash_computes() -> None:
    changed = variables(
        a=Variable("", b"1"), RANDOM=Variable("i", b"4"), _ours_by=Variable("", b"x")
    )
    assert after(variables=changed)["variables"] == {"a": ("", "1")}


def test_a_fresh_shell_is_known_after_the_first_command() -> None:
    first = after()
    second = after(first, variables=variables(a=Variable("", b"1")))
    assert second["fresh"] == first["fresh"]
    assert second["variables"] == {"a": ("", "1")}


def test_without_any_knowledge_of_the_fresh_shell_there_is_no_state() -> None:
    with pytest.raises(MalformedError):
        state_of(dump_of(None), empty_state("/"), env=ENV, borrowed=(), ours="_")


def test_a_state_is_json_whatever_the_bytes() -> None:
    state = after(variables=variables(a=Variable("", bytes(range(1, 256)))))
    assert json.loads(json.dumps(state)) == json.loads(json.dumps(state, ensure_ascii=True))
    assert state["variables"]["a"] == ("", bytes(range(1, 256)).decode("latin-1"))


def test_a_state_that_was_json_compares_like_one_that_was_not() -> None:
    """It is exported over a sleep; tuples come back as lists."""
    woken = json.loads(json.dumps(after()))
    assert after(woken)["limits"] == {}
    assert after(woken)["variables"] == {}


def test_what_is_gone_is_remembered() -> None:
    gone = {"UID": FRESH.variables["UID"]}
    assert sorted(after(variables=gone)["unset"]) == ["HOME", "IFS", "PWD"]


def test_variables_of_one_command_stay_as_they_were() -> None:
    before = after(variables=variables(A=Variable("x", b"mine"), HOME=Variable("x", b"/h")))
    lent = variables(A=Variable("x", b"lent"), B=Variable("x", b"lent"))
    state = after(before, ("A", "HOME", "B"), variables=lent)
    assert state["variables"] == {"A": ("x", "mine"), "HOME": ("x", "/h")}


def test_a_variable_unset_for_one_command_is_not_unset_afterwards() -> None:
    gone = {"UID": FRESH.variables["UID"], "IFS": FRESH.variables["IFS"]}
    assert "HOME" not in after(None, ("HOME",), variables=gone)["unset"]


@pytest.mark.parametrize("name", ["EXIT", "DEBUG", "ERR", "RETURN"])
def test_traps_that_belong_to_one_command_are_not_carried(name: str) -> None:
    assert after(traps={name: b"x", "INT": b"y"})["traps"] == {"INT": "y"}


def test_options_are_kept_as_differences_and_none_that_stops_the_next_command() -> None:
    state = after(options=frozenset({"pipefail", "onecmd"}), shopts=frozenset({"nullglob"}))
    assert state["options"] == {"pipefail": True, "braceexpand": False}
    assert state["shopts"] == {"nullglob": True, "sourcepath": False}


def test_aliases_are_expanded_once_there_are_some_unless_that_was_turned_off() -> None:
    first = after(aliases={b"ll": b"ls"})
    assert expands_aliases(first)
    kept = after(first, aliases={b"ll": b"ls"}, shopts=FRESH.shopts | {"expand_aliases"})
    assert expands_aliases(kept)
    assert not expands_aliases(after(kept, aliases={b"ll": b"ls"}))


def test_assignments_from_outside_replace_what_the_shell_had() -> None:
    state = after(variables=variables(a=Variable("", b"1"), b=Variable("", b"2")))
    changed = assign(state, {"a": "x", "b": None})
    assert changed["variables"] == {"a": ("x", "x")}
    assert changed["unset"] == [*state["unset"], "b"]
