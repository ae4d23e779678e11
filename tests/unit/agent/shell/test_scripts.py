"""The code around a text, as text; what bash makes of it is in the integration tests of shell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.agent.shell import scripts as shell_script
from atoll.agent.shell.quoting import quote_text

NAME = b"__unguessable"
TEXT = b"echo 'it''s' \"$x\" `id` $(id)\n"
RESTORED = b"declare x=1;"

without_nul = st.binary(max_size=200).map(lambda data: data.replace(b"\0", b""))


def eval_script(text: bytes = TEXT, prefix: bytes = b"") -> bytes:
    return shell_script.eval_script(text, RESTORED, prefix, NAME)


def ours(script: bytes, text: bytes = TEXT) -> bytes:
    """Return the script without the user's text."""
    quoted = quote_text(text)
    assert script.count(quoted) == 1
    return script.replace(quoted, b"")


@given(without_nul, without_nul)
def test_any_text_is_one_word_of_one_command_that_ends_with_the_only_nul(
    text: bytes, prefix: bytes
) -> None:
    """`boot` reads to the NUL: an earlier one would cut the dump off."""
    script = eval_script(text, prefix)
    word = quote_text(prefix + b"\n" + text if prefix else text)
    assert script.startswith(b"{ " + RESTORED + b"builtin eval " + word + b" || {")
    assert script.endswith(b"}\n\0")
    assert script.count(b"\0") == 1


@given(without_nul)
def test_a_text_without_a_session_is_one_word_and_ends_with_the_only_nul(text: bytes) -> None:
    script = shell_script.alone_script(text, NAME)
    assert script.endswith(b"builtin eval " + quote_text(text) + b"\n\0")
    assert script.count(b"\0") == 1


def test_our_code_starts_no_process() -> None:
    """A fork costs, and fires the user's CHLD trap."""
    code = ours(eval_script()) + shell_script.opening(NAME, measured=False)
    for fork in (b"$(", b"`", b"<(", b" | ", b"|&", b"&\n", b"\n("):
        assert fork not in code


def test_no_variable_of_ours_has_a_name_that_a_text_can_know() -> None:
    first, argument = shell_script.traced_scripts(TEXT, RESTORED, b"/bin/bash", NAME)
    scripts = [
        eval_script(),
        first,
        argument,
        shell_script.alone_script(TEXT, NAME),
        shell_script.boot(NAME),
        shell_script.opening(NAME, measured=True),
        shell_script.opening(NAME, measured=False),
    ]
    assert not [script for script in scripts if b"__atoll" in script]
    assert NAME in shell_script.boot(NAME)


def test_the_variable_that_boot_read_the_script_into_is_unset_before_the_text_runs() -> None:
    unset = b"unset -v " + NAME + b" "
    assert shell_script.opening(NAME, measured=True).startswith(unset)
    assert shell_script.alone_script(TEXT, NAME).startswith(unset)


def test_the_descriptors_of_the_script_are_closed_before_the_text_runs() -> None:
    opening = shell_script.opening(NAME, measured=True)
    closed = [b"%d" % fd for fd in (shell_script.DUMP_FD, shell_script.SINK_FD)]
    assert all(fd + b"<&-" in opening or fd + b">&-" in opening for fd in closed)
    script = b"exec %d<&-" % shell_script.SCRIPT_FD
    assert script in opening
    assert script in shell_script.alone_script(TEXT, NAME)
    first, _ = shell_script.traced_scripts(TEXT, RESTORED, b"/bin/bash", NAME)
    assert first.startswith(b"exec %d<&-;" % shell_script.TRACED_FD)


def test_a_shell_prints_itself_only_when_it_was_not_measured() -> None:
    measured = shell_script.opening(NAME, measured=True)
    fresh = shell_script.opening(NAME, measured=False)
    assert b"declare -p" not in measured
    assert fresh.startswith(measured)
    assert b"declare -p" in fresh


@pytest.mark.parametrize("traced", [False, True])
def test_the_dump_is_told_to_be_whole_and_the_status_is_the_texts(*, traced: bool) -> None:
    script = eval_script()
    if traced:
        script = shell_script.traced_scripts(TEXT, RESTORED, b"/bin/bash", NAME)[1]
    assert script.index(b"trap - DEBUG") < script.index(b"declare -p")
    assert script.index(b"declare -p") < script.index(rb"\0end\0")
    assert script.rstrip(b"\0\n}").endswith(b'exit "${' + NAME + b'%% *}"\n} >&- 2>&-')
    assert b"STATUS" not in script
    assert b"BUILTINS" not in script


def test_a_traced_text_stands_as_written_and_only_a_whole_one_is_run() -> None:
    """`set -v` prints lines as bash reads them: here the text may not be quoted."""
    first, argument = shell_script.traced_scripts(TEXT, RESTORED, b"/opt/my bash", NAME)
    assert argument.startswith(TEXT)
    check, other = first.index(quote_text(b"set -n\n" + TEXT)), first.index(b"exec -a bash ")
    assert check < other < first.index(RESTORED)
    assert b"'/opt/my bash' -c " + quote_text(shell_script.boot(NAME)) in first
