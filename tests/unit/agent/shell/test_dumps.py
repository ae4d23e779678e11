"""The dump is input: read when it is what bash prints, refused otherwise."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.agent.shell.dumps import (
    Variable,
    read_dump,
    read_traps,
    read_variables,
    split_functions,
)
from atoll.agent.shell.quoting import MalformedError

VARIABLES = b"""declare -- SHELLOPTS="braceexpand"
declare -r BASHOPTS="sourcepath"
declare -a PIPESTATUS=([0]="0")
"""
LIMITS = b"open files          (-n) 1024\nfile size  (blocks, -f) 10\n"
PROCESS = b"shopt -u dotglob\n0022\n" + LIMITS * 2


def dump(**changes: bytes) -> bytes:
    fields = {
        "fresh": VARIABLES,
        "fresh_process": PROCESS,
        "head": b"0 braceexpand sourcepath y",
        "arguments": b"2\0a\0b c",
        "directories": b"1\0/tmp",
        "variables": VARIABLES,
        "function_list": b"",
        "functions": b"",
        "process": b"trap -- 'x' SIGINT\n" + PROCESS,
        "end": b"end",
    }
    return b"\0".join((fields | changes).values()) + b"\0"


def test_a_complete_dump_is_read() -> None:
    read = read_dump(dump(), measured=False)
    assert read.fresh is not None
    assert read.fresh.limits == {"n": ("1024", "1024"), "f": ("10", "10")}
    assert (read.arguments, read.directories) == ([b"a", b"b c"], [b"/tmp"])
    assert read.traps == {"INT": b"x"}
    assert read.after.options == {"braceexpand"}


@pytest.mark.parametrize(
    "changes",
    [
        {"end": b""},
        {"end": b"end\0end"},
        {"variables": b""},
        {"variables": VARIABLES + b"rm -rf /\n"},
        {"variables": VARIABLES + b'declare -- x="$(id)" id\n'},
        {"variables": VARIABLES + b"declare -a y=(1 2)\n"},
        {"head": b"0 a;id b y"},
        {"head": b"0"},
        {"arguments": b"9\0a"},
        {"directories": b"0"},
        {"function_list": b"x\n"},
        {"process": b"id\n"},
        {"process": b"trap -- 'x' INT;id\n0022\n"},
        {"fresh": b""},
    ],
)
def test_what_bash_would_not_print_makes_the_dump_void(changes: dict[str, bytes]) -> None:
    with pytest.raises(MalformedError):
        read_dump(dump(**changes), measured=False)


@given(st.binary(max_size=300), st.integers(0, 400))
def test_garbage_is_refused_and_nothing_else_happens(garbage: bytes, at: int) -> None:
    whole = dump()
    with suppress(MalformedError):
        read_dump(whole[:at] + garbage + whole[at:], measured=False)


def test_declarations_keep_attributes_arrays_and_what_has_no_value() -> None:
    printed = b"""declare -x A="a \\$b"
declare -air N=([2]="1" [7]=$'x\\ny')
declare -A M=(["k ]"]="v" [plain]="w" )
declare -A E=()
declare -x unset
declare -a old='([0]="q")'
"""
    assert read_variables(printed) == {
        "A": Variable("x", b"a $b"),
        "N": Variable("air", {b"2": b"1", b"7": b"x\ny"}),
        "M": Variable("A", {b"k ]": b"v", b"plain": b"w"}),
        "E": Variable("A", {}),
        "unset": Variable("x", None),
        "old": Variable("a", {b"0": b"q"}),
    }


def test_functions_are_cut_apart_and_their_attribute_lines_dropped() -> None:
    printed = b"a () \n{ \n    echo\n}\ndeclare -fx a\nb () \n{ \n    echo\n}\n"
    assert split_functions(printed, [b"a", b"b"]) == [
        b"a () \n{ \n    echo\n}",
        b"b () \n{ \n    echo\n}",
    ]


def test_functions_that_cannot_be_told_apart_stay_together() -> None:
    """The here-document of one function holds the text of another."""
    b = b"b () \n{ \n    echo\n}\n"
    printed = b"a () \n{ \n    cat <<X\n" + b + b"X\n\n}\n" + b + b"c () \n{ \n    :\n}\n"
    pieces = split_functions(printed, [b"a", b"b", b"c"])
    assert pieces[0] == printed[: printed.index(b"\nc ()")]
    assert len(pieces) == 2


def test_traps_are_read_in_both_forms_and_untrapped_signals_left_out() -> None:
    printed = b"trap -- 'a\nb' SIGINT\ntrap -- '' RTMIN+1\ntrap -- - QUIT\n0022\n"
    assert read_traps(printed) == ({"INT": b"a\nb", "RTMIN+1": b""}, b"0022\n")


def test_limits_in_posix_mode_are_counted_in_the_same_unit() -> None:
    """Else changing the mode would look like changing the limit."""
    read = read_dump(dump(head=b"0 braceexpand:posix sourcepath y"), measured=False)
    assert read.after.limits["f"] == ("5", "5")
