"""Cases X: commands with a result (docs and cases of "exec")."""

import asyncio
import hashlib
import time

import pytest

from conformance.clients import Client

EVERYBODY = pytest.mark.clients("sync", "http")
ALSO_CLI = pytest.mark.clients("sync", "http", "cli")
ALSO_BRIDGE = pytest.mark.clients("sync", "http", "bridge")
BY_ALL = pytest.mark.clients("sync", "http", "cli", "bridge")


@EVERYBODY
async def test_x01_unterminated_text_is_bash_s_own_error_and_harms_nothing(box: Client) -> None:
    quote = await box.exec("echo 'oops")
    assert quote.code == 2
    assert b"unexpected EOF" in quote.stderr
    heredoc = await box.exec("cat <<EOF\nabc")
    assert (heredoc.code, heredoc.text) == (0, "abc\n")
    assert b"here-document" in heredoc.stderr
    assert (await box.exec("echo ok")).text == "ok\n"


@pytest.mark.parametrize("command", ["if true; then echo hi", "}", "echo a)"])
async def test_x02_a_syntax_error_keeps_the_session(box: Client, command: str) -> None:
    await box.exec("kept=1")
    broken = await box.exec(command)
    assert (broken.code, broken.error) == (2, None)
    assert b"syntax error" in broken.stderr
    assert (await box.exec("echo $kept")).text == "1\n"


@EVERYBODY
@pytest.mark.parametrize(
    ("command", "code", "signal"),
    [
        ("exit 7", 7, None),
        ("set -e; false", 1, None),
        ("exec bash", 0, None),
        ("kill -9 $$", 137, "SIGKILL"),
    ],
)
async def test_x03_a_command_that_ends_its_shell_is_told_and_the_session_starts_anew(
    box: Client, command: str, code: int, signal: str | None
) -> None:
    ended = await box.exec(command)
    assert (ended.error, ended.code, ended.signal) == ("SESSION_TERMINATED", code, signal)
    again = await box.exec("echo ok")
    assert (again.code, again.text) == (0, "ok\n")


async def test_x03_an_unset_variable_under_set_u_ends_the_shell(box: Client) -> None:
    ended = await box.exec("set -u; echo $NOPE")
    assert ended.error == "SESSION_TERMINATED"
    assert b"NOPE: unbound variable" in ended.stderr
    assert (await box.exec("echo ok")).text == "ok\n"


@pytest.mark.parametrize(
    "command",
    [
        "readonly EXIT_CODE=0",
        "set -n",
        "mv(){ :; }; cat(){ :; }; printf(){ :; }; export -f mv cat printf",
        "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-",
        "exec </dev/null >/dev/null 2>&1",
        "trap '' HUP INT TERM",
        "unset -f command builtin; builtin(){ :; }; command(){ :; }; declare(){ :; }",
    ],
)
async def test_x04_no_text_of_a_command_breaks_the_next_one(box: Client, command: str) -> None:
    await box.exec(command)
    assert (await box.exec("/bin/echo ok")).text in {"ok\n", ""}
    fresh = await box.exec(["/bin/echo", "ok"])
    assert (fresh.code, fresh.text) == (0, "ok\n")


async def test_x04_an_empty_path_is_the_users_own_state(box: Client) -> None:
    await box.exec("export PATH=")
    assert (await box.exec("ls")).code == 127
    assert (await box.exec("echo ok")).text == "ok\n"


@pytest.mark.container
async def test_x04_deleting_every_visible_file_leaves_the_transport_alone(box: Client) -> None:
    await box.exec(["rm", "-rf", "--no-preserve-root", "/"], timeout=60)
    gone = await box.exec(["/bin/ls"])
    assert gone.code is None or gone.code in {126, 127}


@ALSO_BRIDGE
@pytest.mark.parametrize("command", ["log=/x; echo hi", "printf(){ :; }; echo hi"])
async def test_x05_names_of_the_user_are_his_own(box: Client, command: str) -> None:
    assert (await box.exec(command)).text == "hi\n"


@ALSO_BRIDGE
async def test_x07_a_timeout_ends_the_whole_tree_and_keeps_the_output(box: Client) -> None:
    late = await box.exec("echo before; (sleep 2; touch late) & sleep 2; touch late", timeout=0.3)
    assert (late.error, late.stdout) == ("TIMEOUT", b"before\n")
    start = time.monotonic()
    assert (await box.exec("echo ok")).text == "ok\n"
    assert time.monotonic() - start < 1
    await asyncio.sleep(2.2)
    assert (await box.exec("test -e late")).code == 1


async def test_x07_a_tree_that_hides_from_its_parent_is_ended_too(box: Client) -> None:
    command = "trap '' TERM; setsid sh -c \"trap '' TERM; sleep 3; touch late\" & sleep 3"
    assert (await box.exec(command, timeout=0.3)).error == "TIMEOUT"
    await asyncio.sleep(3.2)
    assert (await box.exec("test -e late")).code == 1


@BY_ALL
@pytest.mark.parametrize("text", ["x", "x\\n", "a\\n\\n\\n", "a\\0b", "\\377\\376", "a\\r\\nb\\rc"])
async def test_x11_x13_output_is_byte_exact(box: Client, text: str) -> None:
    exact = text.encode().decode("unicode_escape").replace("ÿþ", "\xff\xfe").encode("latin-1")
    if text == "\\377\\376":
        exact = b"\xff\xfe"
    result = await box.exec(["printf", text])
    assert (result.error, result.code, result.stdout) == (None, 0, exact)


@pytest.mark.container
async def test_x13_random_bytes_arrive_as_they_are(box: Client) -> None:
    await box.exec("head -c 1000 /dev/urandom > r")
    assert (await box.exec("cat r")).stdout == await box.read("/workspace/r")


@ALSO_BRIDGE
async def test_x16_a_million_lines_are_complete(box: Client) -> None:
    result = await box.exec("seq 1000000")
    assert result.stdout == b"".join(b"%d\n" % number for number in range(1, 1_000_001))
    assert not result.truncated


async def test_x16_more_than_a_result_holds_is_cut_and_counted(box: Client) -> None:
    for redirect, index in (("", 0), (" >&2", 1)):
        result = await box.exec(f"head -c 50000000 /dev/zero{redirect}")
        kept = (result.stdout, result.stderr)[index]
        assert (result.code, result.truncated) == (0, True)
        assert (len(kept), result.totals[index]) == (32 << 20, 50_000_000)


@ALSO_BRIDGE
async def test_x18_a_background_child_does_not_hold_the_result_and_lives_on(box: Client) -> None:
    start = time.monotonic()
    result = await box.exec("sleep 90 & echo $!")
    assert time.monotonic() - start < 30
    assert (await box.exec(f"kill -0 {result.text}")).code == 0


@BY_ALL
async def test_x19_standard_input_is_empty_unless_given(box: Client) -> None:
    for command in ("cat", "read x", 'python3 -c "input()"'):
        result = await box.exec(["bash", "-c", command])
        assert (result.stdout, result.code) == (b"", 0 if command == "cat" else 1)


@pytest.mark.clients("sync", "cli")
async def test_x19_standard_input_is_given_and_ends(box: Client) -> None:
    assert (await box.exec(["cat"], stdin=b"a\0b\xff")).stdout == b"a\0b\xff"
    assert (await box.exec(["wc", "-c"], stdin=b"")).text.strip() == "0"


@EVERYBODY
async def test_x20_long_command_text_works(box: Client) -> None:
    text = "x" * 200_000
    assert (await box.exec(f"v={text}; echo ${{#v}}")).text == "200000\n"
    assert (await box.exec("echo ok #" + "x" * 1_000_000)).text == "ok\n"


@pytest.mark.clients("sync")
async def test_x20_long_standard_input_works(box: Client) -> None:
    data = bytes(range(256)) * 20_000
    result = await box.exec("sha256sum", stdin=data)
    assert result.text.split()[0] == hashlib.sha256(data).hexdigest()


@EVERYBODY
async def test_x21_env_is_exact_and_only_for_this_command(box: Client) -> None:
    value = "l1\nl2 'q' \"d\" $HOME `x` \\"
    assert (await box.exec('printf %s "$K"', env={"K": value})).text == value
    unset = await box.exec('echo "${HOME-unset}"', env={"HOME": None})
    assert unset.text == "unset\n"
    assert (await box.exec('echo "${K-unset}"')).text == "unset\n"


@ALSO_BRIDGE
@pytest.mark.parametrize(
    ("command", "code"),
    [("false", 1), ("(exit 255)", 255), ("no-such-cmd", 127), ("printf done", 0)],
)
async def test_x23_the_exit_code_is_the_commands_own(box: Client, command: str, code: int) -> None:
    result = await box.exec(command)
    assert (result.code, result.error) == (code, None)


@EVERYBODY
async def test_x23_a_signal_is_told_by_name(box: Client) -> None:
    result = await box.exec(["bash", "-c", "kill -9 $$"])
    assert (result.code, result.signal) == (137, "SIGKILL")
    inner = await box.exec("bash -c 'kill -9 $$'")
    assert inner.code == 137


@pytest.mark.container
async def test_x24_orphans_leave_no_zombies_and_steal_no_exit_code(box: Client, level: str) -> None:
    orphans = 200 if level == "gvisor" else 2_000  # each takes it 20 ms
    result = await box.exec(
        f"for i in $(seq {orphans}); do (sleep 0.01 &); done; exit_with() {{ return 7; }}; exit_with"
    )
    assert result.code == 7
    await asyncio.sleep(0.5)
    zombies = await box.exec("cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '")
    assert zombies.text == "0\n"


async def test_x27_commands_of_a_session_run_in_order(box: Client) -> None:
    await box.exec("n=0")
    await asyncio.gather(*(box.exec("n=$((n+1)); echo $n >> order") for _ in range(50)))
    order = (await box.exec("cat order")).text.split()
    assert order == [str(number) for number in range(1, 51)]


@EVERYBODY
async def test_x28_tracing_and_traps_show_nothing_of_ours(box: Client) -> None:
    traced = await box.exec("set -x; echo hi")
    assert (traced.text, traced.stderr) == ("hi\n", b"+ echo hi\n")
    later = await box.exec("echo again")
    assert later.stderr == b"+ echo again\n"
    await box.exec("set +x; set -v")
    assert (await box.exec("echo v")).stderr in {b"echo v\n", b"echo v"}
    await box.exec("set +v; trap 'echo d' DEBUG")
    assert (await box.exec("echo plain")).text == "plain\n"


async def test_x28_variables_of_all_kinds_are_there_in_the_next_command(box: Client) -> None:
    await box.exec(
        "shopt -s extglob\nf() { case $1 in +(a)) echo as;; esac; }; "
        'arr=(a "b c"); declare -i n=1; readonly r=1; declare -A m=([k]="v w")'
    )
    state = await box.exec('f aa; echo "${arr[1]}" "${m[k]}"; n=n+1; echo $n; (r=2)')
    assert state.text.split("\n")[:3] == ["as", "b c v w", "2"]
    assert b"readonly" in state.stderr


@ALSO_CLI
async def test_the_working_directory_holds_and_a_missing_one_is_typed(box: Client) -> None:
    assert (await box.exec(["pwd"], cwd="/tmp")).text == "/tmp\n"
    missing = await box.exec(["pwd"], cwd="/no/such")
    assert missing.error == "FILE_NOT_FOUND" or b"/no/such" in missing.stderr


async def test_fifty_commands_at_once_in_one_sandbox_work(box: Client) -> None:
    results = await asyncio.gather(*(box.exec(["echo", str(n)]) for n in range(50)))
    assert [int(result.text) for result in results] == list(range(50))
