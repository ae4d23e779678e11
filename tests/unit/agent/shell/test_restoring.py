"""From a state to shell source: everything is quoted or checked."""

from typing import Any

import pytest

from atoll.agent.shell.quoting import MalformedError
from atoll.agent.shell.restoring import check, first_line, restore
from atoll.agent.shell.states import State, assign, empty_state


def state_with(**fields: Any) -> State:
    state = empty_state("/tmp")
    state.update(fields)  # type: ignore[typeddict-item]
    return state


def lines(state: State, env: dict[str, str] | None = None, borrowed: tuple[str, ...] = ()) -> str:
    return restore(check(state), env or {}, borrowed).decode("latin-1")


@pytest.mark.parametrize(
    "fields",
    [
        {"variables": {"x;id": ("", "1")}},
        {"variables": {"x": (" -i;id", "1")}},
        {"variables": {"x": ("a", {"$(id)": "1"})}},
        {"unset": ["x;id"]},
        {"options": {"x;id": True}},
        {"shopts": {"x id": True}},
        {"traps": {"INT;id": "x"}},
        {"umask": "0;id"},
        {"limits": {"n": ("1", "1;id")}},
        {"limits": {"n;id": ("1", "1")}},
        {"function_attributes": {"f": "x;id"}},
    ],
)
def test_a_state_that_was_tampered_with_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(MalformedError):
        check(state_with(**fields))


def test_what_is_no_name_never_reaches_the_shell() -> None:
    """Callers choose names of environment variables freely."""
    state = assign(empty_state("/"), {"x;id": "1", "a b": None, "ok": "2"})
    assert list(state["variables"]) == ["ok"]
    assert state["unset"] == []


def test_all_of_it_is_one_line() -> None:
    state = state_with(
        variables={"a": ("", "x\ny"), "b": ("A", {"k\n": "v\n"})},
        functions=["f () \n{ \n    :\n}"],
        aliases={"l": "a\nb"},
        traps={"INT": "x\ny"},
        arguments=["\n"],
        directories=["/a\nb"],
    )
    assert "\n" not in lines(state)


def test_a_value_comes_before_the_attribute_that_would_evaluate_it() -> None:
    found = lines(state_with(variables={"x": ("ir", "a[$(id)]")}))
    assert found.index("declare x='a[$(id)]'") < found.index("declare -ir x")


def test_namerefs_come_after_the_variables_they_would_redirect() -> None:
    found = lines(state_with(variables={"r": ("n", "t"), "t": ("", "1")}))
    assert found.index("declare t=1") < found.index("declare -n r=t")


def test_variables_of_this_command_only_are_left_alone() -> None:
    state = state_with(variables={"a": ("x", "1")}, unset=["b"])
    assert " a" not in lines(state, {"a": "2"}, ("a", "b"))
    assert "unset" not in lines(state, {"a": "2"}, ("a", "b"))


def test_a_variable_that_is_no_longer_exported_is_taken_out_of_the_environment() -> None:
    assert "declare +x a" in lines(state_with(variables={"a": ("", "1")}), {"a": "2"})


def test_extended_patterns_are_on_only_while_functions_are_read() -> None:
    state = state_with(functions=["f () \n{ \n    :\n}"])
    assert "shopt -s extglob" in lines(state)
    assert "builtin shopt -u extglob" in lines(state)
    kept = lines(state_with(functions=state["functions"], shopts={"extglob": True}))
    assert "shopt -u extglob" not in kept


def test_tracing_and_a_function_named_builtin_wait_for_the_text() -> None:
    state = state_with(functions=["builtin () \n{ \n    :\n}"], options={"xtrace": True})
    assert "builtin ()" not in lines(state)
    assert first_line(state).startswith(b"builtin eval $'builtin () \\n")
    assert first_line(state).endswith(b"set -x")
    assert first_line(empty_state("/")) == b""
