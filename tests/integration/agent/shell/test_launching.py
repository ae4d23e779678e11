"""Sessions through a real bash: cases X01 to X05, X28, T02, and what ends a launching."""

import os
import signal
from pathlib import Path

import pytest

from atoll.agent.shell import launching
from integration.agent.shell_runner import BASH, ENV, Ran, Shell, execute


@pytest.fixture
def session(tmp_path: Path) -> Shell:
    return Shell(str(tmp_path))


def told(ran: Ran) -> tuple[str, str, int]:
    return ran.stdout.decode(), ran.stderr.decode(), ran.status


def assert_goes_on(session: Shell, ran: Ran) -> None:
    """The text before set kept=1; *ran* has to have kept that."""
    assert not ran.outcome.session_ended
    assert told(session.run('echo "ok $kept"')) == ("ok 1\n", "", 0)


def test_t02_directory_and_variables_are_there_in_the_next_command(session: Shell) -> None:
    session.run("cd /tmp; export A=1")
    assert told(session.run("pwd; echo $A")) == ("/tmp\n1\n", "", 0)


def test_x01_an_unterminated_quote_is_bash_s_own_error(session: Shell) -> None:
    session.run("kept=1")
    ran = session.run("echo 'oops")
    message = "bash: eval: line 1: unexpected EOF while looking for matching `''\n"
    assert told(ran) == ("", message, 2)
    assert_goes_on(session, ran)


def test_x01_an_unterminated_here_document_prints_what_it_has(session: Shell) -> None:
    session.run("kept=1")
    ran = session.run("cat <<EOF\nabc")
    assert (ran.stdout.rstrip(b"\n"), ran.status) == (b"abc", 0)
    assert b"here-document at line 1 delimited by end-of-file (wanted `EOF')" in ran.stderr
    assert_goes_on(session, ran)


@pytest.mark.parametrize("text", ["if true; then echo hi", "}", "echo a)", "for", "echo $("])
def test_x02_a_syntax_error_is_a_result_and_keeps_the_session(session: Shell, text: str) -> None:
    session.run("kept=1")
    ran = session.run(text)
    assert (ran.stdout, ran.status) == (b"", 2)
    assert b"syntax error" in ran.stderr or b"unexpected EOF" in ran.stderr
    assert_goes_on(session, ran)


def test_what_ran_before_a_syntax_error_counts(session: Shell) -> None:
    session.run("a=1\nif; then")
    assert session.run("echo $a").stdout == b"1\n"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("exit 7", 7),
        ("set -e; false", 1),
        ("set -u; echo $NOPE", 127),
        ("exec bash -c 'exit 3'", 3),
        ("exec /no/such", 127),
        ("kill -9 $$", -signal.SIGKILL),
        ("kill $BASHPID", -signal.SIGTERM),
        ("(exit 4); exit", 4),
        ("trap 'exit 5' EXIT; exit 1", 5),
        ("f() { exit 6; }; f", 6),
    ],
)
def test_x03_a_text_that_ends_its_shell_ends_the_session(
    session: Shell, text: str, status: int
) -> None:
    session.run("lost=1; cd /")
    ran = session.run(text)
    assert (ran.status, ran.outcome.session_ended, ran.outcome.state) == (status, True, None)
    assert told(session.run('pwd; echo "$lost"')) == (f"{session.cwd}\n\n", "", 0)


@pytest.mark.parametrize(
    "text",
    [
        "readonly EXIT_CODE=0 status=0 _=0",
        "set -n",
        "mv() { :; }; cat() { :; }; printf() { :; }; export -f mv cat printf",
        "builtin() { :; }; declare() { :; }; typeset() { :; }; eval() { :; }; exit() { :; }",
        "builtin() { :; }; command() { :; }; declare() { :; }; trap() { :; }; set() { :; }",
        "unset() { :; }; export() { :; }; printf() { :; }; ulimit() { :; }; umask() { :; }",
        "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-",
        'for i in {3..255}; do eval "exec $i>&-"; done',
        "exec </dev/null >/dev/null 2>&1",
        "exec >&- 2>&- <&-",
        "trap '' HUP INT TERM PIPE XFSZ",
        "trap 'false' DEBUG",
        "shopt -s extdebug; trap : DEBUG",
        "set -f; IFS=abcdefghijklmnopqrstuvwxyz; GLOBIGNORE='*'",
        "set -eu; set -o pipefail",
        "set -k; set -a; set -C; set -b; set -T -E",
        "export CDPATH=/usr:/etc LC_ALL=xx_XX.nope TMOUT=1 FUNCNEST=1 POSIXLY_CORRECT=1",
        "export BASH_ENV=/no/such SHELLOPTS BASHOPTS",
        "alias builtin=false trap=false set=false '{=false' 'if=false'; shopt -s expand_aliases",
        "ulimit -f 0",
        "return 3",
        "exec 10>/dev/null 11>/dev/null 12>/dev/null 255>/dev/null",
        "enable -n printf declare trap set exit unset eval umask ulimit export",
        "enable -n builtin",
        "BASH_XTRACEFD=nope; PS4='$(exit 3)'",
        "declare -n r=r; declare -i 'x=1+'; a[1000000]=1",
        "unset PIPESTATUS DIRSTACK BASH_ALIASES",
        "(sleep 0.2) & disown; coproc cat",
        "ulimit -n 64",
    ],
)
def test_x04_no_text_breaks_the_session(session: Shell, text: str) -> None:
    session.run("kept=1")
    ran = session.run(text)
    assert not ran.outcome.session_ended
    after = session.run('command echo "ok $kept"')
    assert (after.stdout.split()[:1], after.status, after.outcome.session_ended) in [
        ([b"ok"], 0, False),
        ([], 0, False),  # `command` is a function of the user's now
    ]


def test_x04_an_empty_path_is_the_users_own_state(session: Shell) -> None:
    session.run("export PATH=")
    assert session.run("ls").status == 127
    assert told(session.run("echo ok")) == ("ok\n", "", 0)


@pytest.mark.parametrize("text", ["log=/x; echo hi", "printf(){ :; }; echo hi"])
def test_x05_names_of_the_user_are_the_users_own(session: Shell, text: str) -> None:
    assert told(session.run(text)) == ("hi\n", "", 0)


def test_x28_tracing_shows_the_commands_of_the_text_and_nothing_of_ours(session: Shell) -> None:
    assert told(session.run("set -x; echo hi")) == ("hi\n", "+ echo hi\n", 0)
    assert told(session.run("echo again; (exit 3)")) == ("again\n", "+ echo again\n+ exit 3\n", 3)
    assert told(session.run("f() { echo $1; }\nf 'a b'"))[1] == "+ f 'a b'\n+ echo a b\n"
    assert session.run("set +x").stderr == b"+ set +x\n"
    assert told(session.run("echo quiet")) == ("quiet\n", "", 0)


def test_x28_a_broken_text_is_not_mixed_with_ours_while_tracing(session: Shell) -> None:
    ran = session.run("set -x; if true; then echo hi")
    assert (ran.stdout, ran.status) == (b"", 2)
    assert ran.stderr.startswith(b"bash: eval: line 2: syntax error: unexpected end of file")
    assert not ran.outcome.session_ended


def test_x28_tracing_into_a_file_traces_nothing_of_ours(session: Shell) -> None:
    session.run("exec 5>trace; BASH_XTRACEFD=5; set -x; echo hi")
    assert Path(session.cwd, "trace").read_text() in {"+ echo hi\n", "++ echo hi\n"}


def test_x28_verbose_shows_the_lines_of_the_text_and_nothing_of_ours(session: Shell) -> None:
    assert told(session.run("set -v\necho hi\n")) == ("hi\n", "echo hi\n", 0)
    assert told(session.run("echo v\n")) == ("v\n", "echo v\n", 0)


@pytest.mark.parametrize("options", ["", "set -T; ", "set -x; "])
def test_x28_a_debug_trap_shows_the_commands_of_the_text_only(session: Shell, options: str) -> None:
    ran = session.run(options + "trap 'echo d' DEBUG\necho hi")
    assert ran.stdout == b"d\nhi\n"
    assert told(session.run("set +x 2>/dev/null; echo plain"))[0] == "plain\n"


def test_x28_an_err_trap_runs_once_for_each_failure(session: Shell) -> None:
    ran = session.run("trap 'echo e' ERR; false; (exit 8)")
    assert told(ran) == ("e\ne\n", "", 8)


def test_x28_state_of_every_kind_is_there_in_the_next_command(session: Shell) -> None:
    session.run(
        "shopt -s extglob\n"
        "f() { case $1 in +(a|b)) echo yes;; esac; }\n"
        "arr=(a 'b c'); declare -i n=1; readonly r=1; declare -A m=([k 1]='v w')"
    )
    ran = session.run('f ab; n+=1; echo "${arr[1]} $n ${m[k 1]}"; r=2')
    assert told(ran) == ("yes\nb c 2 v w\n", "bash: line 1: r: readonly variable\n", 1)


def test_an_exit_trap_runs_at_the_end_of_its_command_and_sees_nothing_of_ours(
    session: Shell,
) -> None:
    ran = session.run(
        'trap \'echo "bye $?"; declare -p | grep -c "_[0-9a-f]\\{8\\}"\' EXIT; (exit 4)'
    )
    assert told(ran) == ("bye 4\n0\n", "", 4)
    assert not ran.outcome.session_ended
    assert told(session.run("trap -p")) == ("", "", 0)


def test_an_exit_trap_that_executes_a_program_gives_the_status(session: Shell) -> None:
    ran = session.run("kept=1; trap 'exec sh -c \"echo x; exit 9\"' EXIT")
    assert (ran.stdout, ran.status) == (b"x\n", 9)
    assert_goes_on(session, ran)


def test_a_list_that_set_e_forgives_does_not_end_the_shell(session: Shell) -> None:
    ran = session.run("kept=1; set -e; false && true")
    assert ran.status == 1
    assert_goes_on(session, ran)


def test_programs_see_the_three_standard_descriptors_and_no_more(session: Shell) -> None:
    ran = session.run("ls /proc/self/fd; echo *; bash -c 'echo /proc/self/fd/*'")
    fds = ran.stdout.split(b"\n")
    assert fds[:4] == [b"0", b"1", b"2", b"3"]  # 3 is the directory that ls reads
    assert b"9" not in ran.stdout.split(b"*")[-1]


def test_nothing_of_ours_is_a_variable_of_the_text(session: Shell) -> None:
    ran = session.run("compgen -v; compgen -A function; alias; trap -p; compgen -A arrayvar")
    names = ran.stdout.split()
    assert b"PATH" in names
    assert [name for name in names if name.startswith(b"_")] in ([], [b"_"])


@pytest.mark.parametrize(
    "text", ["a=(1 2); echo ${a[08]}", "declare -i n; n=08", "declare -i 'x=1+'", "a[1 1]=2"]
)
def test_a_bad_subscript_or_integer_is_a_result_and_keeps_the_earlier_state(
    session: Shell, text: str
) -> None:
    session.run("kept=1")
    ran = session.run(f"kept=2; {text}")
    assert ran.status == 1
    assert_goes_on(session, ran)


def test_a_megabyte_of_text_runs(session: Shell) -> None:
    assert session.run("echo ok #" + "x" * 1_000_000).stdout == b"ok\n"
    assert session.run(f"v='{'y' * 1_000_000}'; echo ${{#v}}").stdout == b"1000000\n"
    assert session.run("echo ${#v}").stdout == b"1000000\n"


def test_standard_input_belongs_to_the_text(session: Shell) -> None:
    assert session.run("read a; read b; echo $b$a; cat", stdin=b"1\n2\n3\n").stdout == b"21\n3\n"
    assert session.run("echo $b$a; cat").stdout == b"21\n"


def test_state_beyond_the_limit_keeps_the_earlier_state(session: Shell) -> None:
    session.run("kept=1")
    ran = session.run("kept=2; printf -v big '%9000000s' x")
    assert (ran.outcome.session_ended, ran.outcome.state_saved) == (False, False)
    assert session.run('echo "$kept ${#big}"').stdout == b"1 0\n"


def test_variables_for_one_command_are_gone_afterwards(session: Shell) -> None:
    session.run("export A=mine; readonly R=1; plain=p")
    changes = {"A": "l1\nl2'", "B": "b", "HOME": None, "R": "2", "plain": "q"}
    ran = session.run(
        'printf "%s|" "$A" "$B" "${HOME-unset}" $R $plain; A=x; C=$A', changes=changes
    )
    assert ran.stdout == b"l1\nl2'|b|unset|2|q|"
    after = session.run('echo "$A" "${B-unset}" "$HOME" "$R" "$plain" "$C"')
    assert after.stdout == b"mine unset /root 1 p x\n"


def test_a_directory_for_one_command_is_kept_only_if_the_text_leaves_it(session: Shell) -> None:
    assert session.run("pwd", elsewhere="/usr").stdout == b"/usr\n"
    assert session.run("pwd").stdout == f"{session.cwd}\n".encode()
    session.run("cd lib", elsewhere="/usr")
    assert session.run("pwd").stdout == b"/usr/lib\n"


def test_a_directory_keeps_the_name_it_was_entered_by(session: Shell) -> None:
    os.symlink("/usr", Path(session.cwd, "link"))
    session.run("cd link")
    assert session.run("pwd; pwd -P").stdout == f"{session.cwd}/link\n/usr\n".encode()


def test_startup_file_of_the_environment_is_read_once_as_by_one_shell(tmp_path: Path) -> None:
    Path(tmp_path, "env").write_text("echo started; greeting=hello; alias hi='echo $greeting'\n")
    session = Shell(str(tmp_path), {**ENV, "BASH_ENV": str(tmp_path / "env")})
    assert session.run("echo $greeting").stdout == b"started\nhello\n"
    assert session.run("hi; bash -c 'echo $greeting'").stdout == b"hello\nstarted\nhello\n"


def test_variables_set_from_outside_replace_those_of_the_shell(session: Shell) -> None:
    session.run("A=1; B=2; export C=3")
    assert session.state
    session.state = launching.assign(session.state, {"A": "x", "C": None})
    assert session.run('echo "$A $B ${C-unset}"; env | grep ^A').stdout == b"x 2 unset\nA=x\n"


@pytest.mark.parametrize("length", [10, 200_000])
def test_a_text_without_a_session_is_plain_bash(length: int) -> None:
    text = "echo $0 $LINENO\nnosuch; exit 3 #" + "x" * length
    launch = launching.prepare_alone(text, program=BASH, env=ENV, cwd="/tmp")
    stdout, stderr, _, status = execute(launch)
    assert (stdout, status) == (b"bash 1\n", 3)
    assert stderr == b"bash: line 2: nosuch: command not found\n"
