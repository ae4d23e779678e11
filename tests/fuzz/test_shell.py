"""Nasty texts, put together at random: a session must look like plain bash, and like one bash.

The short run takes a few examples; `-m slow` takes many.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atoll.agent.shell import launching
from atoll.agent.shell.quoting import quote_text
from integration.agent.shell_runner import BASH, ENV, Shell, execute

HARMLESS = [
    "true",
    "false",
    "echo a b  c",
    "echo out; echo err >&2",
    "nosuch",
    "(exit 5)",
    "a=1",
    "a=$((a+1))",
    "export B='x y'",
    "unset a B",
    'echo "$a|$B|$1|$#|$?"',
    "c=(1 'two 2' [7]=x)",
    "declare -A m=([k]='v $a' ['q]']=$'\\n')",
    "declare -i n=3; n+=4",
    "declare -u up=${B:-low}",
    "readonly ro=1",
    "ro=2",
    "readonly IFS",
    "set -- x 'y z'",
    "shift 2>/dev/null",
    "f() { echo f$1; return 3; }",
    "f 1",
    "g() { local a=9; echo $a; false; }",
    "g",
    "h() { cat <<X\n$a\ng () \n{ \n}\nX\n}",
    "h",
    "export -f f; bash -c 'f 2'",
    "printf() { echo mine; }",
    "printf x",
    'cd() { builtin cd "$@"; }',
    'builtin() { command builtin "$@"; }',
    "trap() { :; }",
    "unset -f f g h printf cd builtin trap",
    "cd /usr",
    "cd /tmp && pwd",
    "cd /nosuch",
    "pushd /etc >/dev/null",
    "popd >/dev/null 2>&1",
    "mkdir -p d && cd d",
    "umask 077",
    "umask",
    "set -f",
    "set +f",
    "set -u",
    "set +u",
    "set -o pipefail",
    "false | true",
    "set -C",
    "echo x >| file",
    "set -k",
    "set -a; aa=1; set +a",
    "set -T",
    "set -E",
    "shopt -s nullglob extglob",
    "shopt -u extglob",
    "echo /nosuch*",
    "IFS=:",
    "v=a:b:c; echo $v",
    "IFS=$' \\t\\n'",
    "LC_ALL=C",
    "PS4='> '",
    "OPTIND=2",
    "trap 'echo usr' USR1",
    "kill -USR1 $$",
    "trap '' USR2",
    "trap - USR1",
    'read line; echo "got $line"',
    "cat",
    "exec 3>file3; echo to3 >&3",
    "exec 4<&0",
    "exec 10>&1; echo ten >&10",
    "exec {fd}>/dev/null; echo fd >&$fd",
    "{ echo g; } 2>&1 | cat",
    "echo $(echo sub; exit 3); echo $?",
    "x=$(false) || echo failed",
    "for i in 1 2; do echo $i; done",
    "while read -r w; do echo \"<$w>\"; done <<< $'p\\nq'",
    "case $a in 1) echo one;; *) echo other;; esac",
    "[[ abc =~ b(.) ]]; echo ${BASH_REMATCH[1]}",
    "((0))",
    "let 1/0",
    "echo $((1/0))",
    "echo ${nope:-default} ${a:+set}",
    "cat <<X\nhere $a\nX",
    "return 2",
    "break",
    "local z=1",
    "!",
    "! true",
    "time -p true 2>/dev/null",
    "sleep 0.01 & wait",
    "coproc { cat; }; exec {COPROC[1]}>&-; wait",
    "echo \x01\x7f é $'\\377'",
    ": \\",
    "ulimit -S -n 500",
    "unset PIPESTATUS",
    "_=5",
    "declare -n ref=a; echo $ref",
    "GLOBIGNORE=x",
    "enable -n printf; enable printf",
    "hash -r",
    "wait 1 2>/dev/null",
]
ENDING = [
    "exit",
    "exit 7",
    "set -e",
    "exec true",
    "exec /nosuch",
    "echo ${nope?gone}",
    "trap 'echo bye $?' EXIT",
    "trap 'exit 9' EXIT",
    "trap 'echo err' ERR",
    "kill -TERM $$",
    "exec >&-",
    "exec 2>&1",
    "exec </dev/null",
]
BROKEN = [
    "echo 'open",
    'echo "open',
    "if true; then",
    "}",
    ")",
    "for x in",
    "cat <<EOF\nbody",
    "echo $(",
    "f() {",
    "case x in",
    "a=(",
    "[[ x",
    "((",
    ";;",
    "& &",
]
SEPARATORS = ["; ", "\n", " && ", " || ", "\n\n"]

Draw = Callable[..., Any]


@st.composite
def texts(draw: Draw, pieces: list[str], most: int = 6) -> str:
    parts: list[str] = draw(st.lists(st.sampled_from(pieces), min_size=1, max_size=most))
    text = parts[0]
    for part in parts[1:]:
        text += draw(st.sampled_from(["\n"] if "<<" in text else SEPARATORS)) + part
    return text


@contextmanager
def directory() -> Iterator[str]:
    """Yield an empty directory, always by the same name, so that paths in output are equal."""
    path = os.path.join(tempfile.gettempdir(), f"atoll-fuzz-{os.getpid()}")
    os.mkdir(path)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def comparable(output: bytes) -> bytes:
    """Hide what two runs of bash never have in common: where a text came from, process ids."""
    output = re.sub(rb"(?m)^bash: (-c|eval): ", b"bash: ", output)
    return re.sub(rb"\b\d{3,}\b", b"PID", output).replace(b"expand_aliases:", b"")


STDIN = b"line 1\nline 2\nline 3\n"


def check_like_plain(text: str) -> None:
    with directory() as here:
        plain = launching.prepare_alone(text, program=BASH, env=ENV, cwd=here)
        stdout, stderr, _, status = execute(plain, STDIN)
    with directory() as here:
        ran = Shell(here).run(text, stdin=STDIN)
    assert comparable(ran.stdout) == comparable(stdout)
    assert comparable(ran.stderr) == comparable(stderr)
    # At some syntax errors `bash -c` keeps the status of the command before; here it is always 2.
    broken = b"bash: -c: " in stderr
    assert ran.status == (2 if broken and ran.status == 2 else status)


PROBE = r"""
declare -p | grep -a -vE '^declare -[-a-zA-Z]* (_|BASH[A-Z0-9_]*|PIPESTATUS|LINENO|SECONDS|RANDOM)'\
'|^declare -[-a-zA-Z]* (SRANDOM|EPOCH.*|COPROC.*|PPID|HISTCMD|FUNCNAME|t[0-9]|fd|DIRSTACK)(=|$)'
declare -f; declare -F; set +o; shopt | grep -v -e expand_aliases; alias; trap -p; umask
ulimit -Sa; printf '<%s>' "$@"; echo; dirs -l -p; pwd
""".replace("'\\\n'", "")


def check_like_one_bash(sequence: list[str]) -> None:
    probe = "{ unset -f builtin trap printf cd; set +ukC; " + PROBE + "\n} 2>&1"
    with directory() as here:
        session = Shell(here)
        outputs = [session.run(text).stdout for text in sequence]
        after = session.run(probe).stdout
    evals = b"".join(b"builtin eval " + quote_text(text.encode()) + b" || :\n" for text in sequence)
    with directory() as here:
        one = launching.prepare_alone(
            (b"shopt -s expand_aliases\n" + evals).decode() + "echo PROBE\n" + probe,
            program=BASH,
            env={**ENV, "PWD": here},
            cwd=here,
        )
        stdout, _, _, _ = execute(one)
    before, goes_on, expected = stdout.partition(b"PROBE\n")
    if not goes_on:  # `set -u` ended it
        return
    assert comparable(b"".join(outputs)) == comparable(before)
    assert (
        after.decode("utf-8", "replace").splitlines()
        == expected.decode("utf-8", "replace").splitlines()
    )


QUIET = [
    piece
    for piece in HARMLESS
    if not any(
        word in piece
        for word in ("exec", "coproc", "let 1/0", "$((1/0))", "builtin()", "$?", "time", "wait")
    )
]

few = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
many = settings(few, max_examples=400)

ANY = texts(HARMLESS + ENDING + BROKEN)


@few
@given(ANY)
def test_a_text_looks_like_plain_bash(text: str) -> None:
    check_like_plain(text)


@few
@given(st.lists(texts(QUIET, 3), min_size=1, max_size=4))
def test_a_sequence_of_texts_leaves_what_one_bash_would_have(sequence: list[str]) -> None:
    check_like_one_bash(sequence)


@pytest.mark.slow
@pytest.mark.timeout(900)
@many
@given(ANY)
def test_many_texts_look_like_plain_bash(text: str) -> None:
    check_like_plain(text)


@pytest.mark.slow
@pytest.mark.timeout(900)
@many
@given(st.lists(texts(QUIET, 3), min_size=1, max_size=4))
def test_many_sequences_leave_what_one_bash_would_have(sequence: list[str]) -> None:
    check_like_one_bash(sequence)
