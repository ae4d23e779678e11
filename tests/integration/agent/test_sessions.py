"""Sessions, by the real agent: state, order, ends."""

import threading
import time
from typing import Any

import pytest

from atoll import errors
from atoll.wire.frames import Kind
from integration.agent.client import Client, alive


def run(agent: Client, command: str | list[str], session: str = "default", **fields: Any) -> str:
    return agent.exec(command, session=session, **fields).stdout.decode()


def test_state_goes_from_one_command_to_the_next(agent: Client) -> None:
    """T02, X28."""
    agent.call("session.create", id="state")
    run(agent, "cd /tmp; export A=1; arr=(a 'b c'); f() { echo called $1; }", "state")
    assert run(agent, 'pwd; echo $A "${arr[1]}"; f x', "state") == "/tmp\n1 b c\ncalled x\n"


def test_the_default_session_is_made_when_it_is_used(agent: Client) -> None:
    run(agent, "x=kept")
    assert run(agent, "echo $x") == "kept\n"
    assert "default" in {session["id"] for session in agent.call("session.list")["sessions"]}


def test_an_unknown_session_is_a_typed_error(agent: Client) -> None:
    with pytest.raises(errors.SessionNotFoundError):
        run(agent, "true", "never-made")


def test_a_session_id_is_taken_once(agent: Client) -> None:
    agent.call("session.create", id="twice")
    with pytest.raises(errors.SessionAlreadyExistsError):
        agent.call("session.create", id="twice")


@pytest.mark.parametrize(
    ("command", "code", "signal"),
    [
        ("exit 7", 7, None),
        ("set -e; false", 1, None),
        ("set -u; echo $NOPE", 127, None),
        ("exec true", 0, None),
        ("kill -9 $$", 137, "SIGKILL"),
    ],
)
def test_a_command_that_ends_its_shell_says_so(
    agent: Client, command: str, code: int, signal: str | None
) -> None:
    """X03, S03: and the session starts anew with what it was created with."""
    run(agent, "cd /; left=over", "default")
    record = agent.exec(command, session="default").record
    assert record["session_ended"]
    assert record["signal"] == signal
    assert record["exit_code"] == code or command.startswith("set -u")
    assert run(agent, "echo ${left-gone} $PWD") == f"gone {agent.directory}/workspace\n"


def test_a_syntax_error_is_a_result(agent: Client) -> None:
    """X01, X02."""
    run(agent, "kept=1")
    for text in ("echo 'oops", "if true; then echo hi", "}", "echo a)"):
        result = agent.exec(text, session="default")
        assert (result.code, result.record["session_ended"]) == (2, False)
        assert b"syntax error" in result.stderr or b"unexpected EOF" in result.stderr
    assert run(agent, "echo $kept") == "1\n"


@pytest.mark.parametrize(
    "text",
    ["readonly EXIT_CODE=0", "set -n", "mv() { :; }", "exec 3>&- 4>&- 9>&-", "printf() { :; }"],
)
def test_user_code_cannot_break_the_next_command(agent: Client, text: str) -> None:
    """X04."""
    agent.call("session.create", id=text[:6])
    agent.exec(text, session=text[:6])
    result = agent.exec("echo ok", session=text[:6])
    assert (result.stdout, result.code) == (b"ok\n", 0)
    agent.call("session.delete", id=text[:6])


def test_a_timed_out_command_leaves_the_state_of_before(agent: Client) -> None:
    run(agent, "v=before; cd /tmp")
    record = agent.exec("v=after; cd /; sleep 30", session="default", timeout=0.3).record
    assert (record["timed_out"], record["session_ended"], record["state_saved"]) == (
        True,
        False,
        False,
    )
    assert run(agent, "echo $v $PWD") == "before /tmp\n"


def test_env_of_one_command_is_gone_in_the_next(agent: Client) -> None:
    """X21."""
    assert run(agent, "echo $K", env={"K": "v"}) == "v\n"
    assert run(agent, "echo ${K-none}") == "none\n"


def test_cwd_of_one_command_is_relative_to_the_session_and_gone_afterwards(agent: Client) -> None:
    agent.call("session.create", id="moves", cwd="/usr")
    assert run(agent, "pwd", "moves", cwd="bin") == "/usr/bin\n"
    assert run(agent, "pwd", "moves") == "/usr\n"
    assert run(agent, ["pwd"], "moves") == "/usr\n"


def test_variables_are_set_for_a_session_and_for_all(agent: Client) -> None:
    """T04: also over what the shell's state holds; None unsets."""
    agent.call("session.create", id="vars", env={"OWN": "1"})
    run(agent, "export A=state B=state", "vars")
    agent.call("session.env", session="vars", env={"A": "set", "B": None})
    assert run(agent, "echo $OWN $A ${B-unset}", "vars") == "1 set unset\n"
    run(agent, "A=changed", "vars")
    assert run(agent, "echo $A", "vars") == "changed\n"
    agent.call("session.env", env={"OWN": "2", "ALL": "3"})
    assert run(agent, "echo $OWN $ALL", "vars") == "1 3\n"
    assert agent.exec("echo $OWN $ALL").stdout == b"2 3\n"
    agent.call("session.env", env={"OWN": None, "ALL": None})


def test_one_session_runs_its_commands_in_order(agent: Client) -> None:
    """X27."""
    agent.call("session.create", id="order")
    first = agent.start("sleep 0.5; echo 0 >> order", session="order")
    waiting = []
    for n in range(1, 20):
        waiting.append(agent.start(f"echo {n} >> order", session="order"))
        time.sleep(0.005)
    for connection in [first, *waiting]:
        assert connection.result().code == 0
    want = "".join(f"{n}\n" for n in range(20))
    assert (agent.directory / "workspace" / "order").read_text() == want


def test_sessions_run_in_parallel(agent: Client) -> None:
    """X27: two that wait for each other both end."""
    for name in ("ping", "pong"):
        agent.call("session.create", id=name)
    text = "touch {}; while ! [ -e {} ]; do sleep 0.02; done; echo met"
    results: list[str] = []
    threads = [
        threading.Thread(target=lambda t=t, s=s: results.append(run(agent, t, s, timeout=10)))
        for t, s in [(text.format("p1", "p2"), "ping"), (text.format("p2", "p1"), "pong")]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["met\n", "met\n"]


def test_a_waiting_command_can_be_cancelled(agent: Client) -> None:
    agent.call("session.create", id="queue")
    with agent.start("sleep 30", session="queue", cancel_on_drop=True) as first:
        first.until(Kind.STARTED)
        with agent.start("echo never", session="queue") as second:
            second.send(Kind.CANCEL)
            with pytest.raises(errors.OperationInterruptedError):
                second.result()
    assert run(agent, "echo next", "queue") == "next\n"


def test_deleting_a_session_ends_what_runs_waits_or_was_left(agent: Client) -> None:
    """Semantics "Processes" 4, X18."""
    agent.call("session.create", id="doomed")
    left = int(run(agent, "sleep 600 >/dev/null 2>&1 & echo $!", "doomed"))
    running = agent.start("sleep 600", session="doomed")
    running.until(Kind.STARTED)
    waiting = agent.start("echo never", session="doomed")
    time.sleep(0.2)
    assert alive(left)
    agent.call("session.delete", id="doomed")
    assert not alive(left)
    assert running.result().record["cancelled"]
    with pytest.raises(errors.SessionDestroyedError):
        waiting.result()
    with pytest.raises(errors.SessionNotFoundError):
        run(agent, "true", "doomed")


def test_sessions_survive_an_export_and_import(agent: Client) -> None:
    """Lifecycle 3: env, cwd and variables, of sessions and of the sandbox."""
    agent.call("session.create", id="traveller", env={"E": "1"}, name="n")
    run(agent, "cd /usr; v=kept; big=$(head -c 200000 /dev/zero | tr '\\0' x)", "traveller")
    agent.call("session.env", session="traveller", env={"S": "2"})
    exported = agent.call("session.export")
    before = agent.call("session.list")["sessions"]
    agent.call("session.delete", id="traveller")
    agent.call("session.import", **exported)
    after = agent.call("session.list")["sessions"]
    assert sorted(map(str, before)) == sorted(map(str, after))
    assert run(agent, "echo $PWD $v ${#big} $E $S", "traveller") == "/usr kept 200000 1 2\n"


def test_what_a_command_left_is_seen_by_whatever_is_asked_next(agent: Client) -> None:
    """The next request may reach the router before the report of the last command does."""
    agent.call("session.create", id="quick")
    for n in range(30):
        agent.exec(f"mkdir -p {agent.directory}/d{n}; cd {agent.directory}/d{n}", session="quick")
        with agent.start(["pwd"], session="quick", detach=True) as process:
            assert process.result().stdout.decode().strip().endswith(f"/d{n}")
        reply = agent.call("fs.stat", path=".", session="quick")
        assert reply["absolutePath"].endswith(f"/d{n}")
        found = {one["id"]: one["cwd"] for one in agent.call("session.list")["sessions"]}
        assert found["quick"].endswith(f"/d{n}")


def test_deleting_a_session_does_not_hit_the_next_command_of_its_supervisor(agent: Client) -> None:
    for n in range(20):
        agent.call("session.create", id=f"short-{n}")
        assert run(agent, f"echo {n}", f"short-{n}") == f"{n}\n"
        agent.call("session.delete", id=f"short-{n}")


@pytest.mark.parametrize("blocks", [0, 1])
def test_a_limit_of_file_sizes_does_not_end_the_session(agent: Client, blocks: int) -> None:
    """Its state is no file."""
    agent.call("session.create", id=f"small-{blocks}")
    first = agent.exec(f"x=kept; ulimit -S -f {blocks}", session=f"small-{blocks}")
    assert (first.record["signal"], first.record["state_saved"]) == (None, True)
    assert run(agent, "echo $x; ulimit -f", f"small-{blocks}") == f"kept\n{blocks}\n"


def test_many_large_states_are_saved_only_while_there_is_room(agent: Client) -> None:
    fill = "v=$(head -c 3000000 /dev/urandom | base64 -w0)"
    saved = []
    for number in range(12):
        agent.call("session.create", id=f"large-{number}")
        saved.append(agent.exec(fill, session=f"large-{number}").record["state_saved"])
    assert saved[0]
    assert not saved[-1]
    assert run(agent, "echo ${#v}", "large-0") == "4000000\n"
    assert run(agent, "echo ${v-unset}; y=1", "large-11") == "unset\n"
    assert run(agent, "echo $y", "large-11") == "1\n"
    for number in range(12):
        agent.call("session.delete", id=f"large-{number}")
