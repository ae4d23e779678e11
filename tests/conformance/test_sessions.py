"""Cases T: sessions, environment, identity."""

import asyncio
import time

import pytest

import atoll
from atoll.errors import SessionAlreadyExistsError, SessionNotFoundError


async def test_t01_many_first_calls_at_once_make_one_sandbox(url: str, sandbox_id: str) -> None:
    async with atoll.connect(url) as env:
        handles = [atoll.get_sandbox(env.Sandbox, sandbox_id) for _ in range(20)]
        results = await asyncio.gather(*(handle.exec(["hostname"]) for handle in handles))
        assert {result.exit_code for result in results} == {0}
        assert (await handles[0].info()).generation == 1
        await handles[0].destroy()


async def test_t01_an_id_is_a_new_empty_sandbox_after_destroy(sandbox: atoll.Sandbox) -> None:
    await sandbox.exec(["touch", "mine"])
    await asyncio.gather(sandbox.destroy(), sandbox.destroy())
    assert (await sandbox.exec(["ls"])).stdout == ""
    await sandbox.destroy()
    await sandbox.destroy()


async def test_t02_the_default_session_keeps_directory_and_variables(
    sandbox: atoll.Sandbox,
) -> None:
    await sandbox.exec("cd /tmp; export A=1")
    assert (await sandbox.exec("pwd; echo $A")).stdout == "/tmp\n1\n"


async def test_t02_without_a_default_session_each_call_is_fresh(url: str, sandbox_id: str) -> None:
    async with atoll.connect(url) as env:
        sandbox = atoll.get_sandbox(env.Sandbox, sandbox_id, enable_default_session=False)
        await sandbox.exec("cd /tmp; export A=1")
        assert (await sandbox.exec('echo "${A-none}"; exit 3')).exit_code == 3
        fresh = await sandbox.exec('echo "${A-none}"; test "$PWD" != /tmp')
        assert (fresh.stdout, fresh.exit_code) == ("none\n", 0)
        await sandbox.destroy()


async def test_sessions_have_states_of_their_own_and_run_in_parallel(
    sandbox: atoll.Sandbox,
) -> None:
    one = await sandbox.create_session(id="one", env={"WHO": "one"}, cwd="/tmp")
    two = await sandbox.create_session(id="two")
    assert (await one.exec("echo $WHO; pwd")).stdout == "one\n/tmp\n"
    assert (await two.exec("echo ${WHO-none}")).stdout == "none\n"
    start = time.monotonic()
    await asyncio.gather(one.exec("sleep 1"), two.exec("sleep 1"))
    assert time.monotonic() - start < 1.9
    again = await sandbox.get_session("one")
    assert (await again.exec("echo $WHO")).stdout == "one\n"
    assert {"one", "two"} <= {info.id for info in await sandbox.list_sessions()}


async def test_a_session_that_is_deleted_is_gone_with_its_processes(sandbox: atoll.Sandbox) -> None:
    session = await sandbox.create_session(id="s")
    await session.exec("sleep 4545 &")
    await sandbox.delete_session("s")
    left = await sandbox.exec(["sh", "-c", "pgrep -fx 'sleep 4545' | wc -l"])
    assert left.stdout.strip() == "0"
    with pytest.raises(SessionNotFoundError):
        await sandbox.get_session("s")


async def test_session_ids_are_taken_once(sandbox: atoll.Sandbox) -> None:
    await sandbox.create_session(id="s")
    with pytest.raises(SessionAlreadyExistsError):
        await sandbox.create_session(id="s")


async def test_the_time_limit_of_a_session_holds_for_each_of_its_handles(
    sandbox: atoll.Sandbox,
) -> None:
    made = await sandbox.create_session(id="brief", command_timeout=0.5)
    found = await sandbox.get_session("brief")
    for handle in (made, found):
        with pytest.raises(atoll.TimeoutError, match="timeout"):
            await handle.exec("sleep 60")
    assert (await found.exec("sleep 1; echo done", timeout=None)).stdout == "done\n"


async def test_t04_env_vars_reach_every_later_command_and_none_unsets(
    sandbox: atoll.Sandbox,
) -> None:
    await sandbox.exec("true")
    await sandbox.set_env_vars({"A": "1 '\"\n2", "B": "x"})
    assert (await sandbox.exec('printf %s "$A"')).stdout == "1 '\"\n2"
    assert (await sandbox.exec(["printenv", "B"])).stdout == "x\n"
    await sandbox.set_env_vars({"B": None})
    assert (await sandbox.exec(["printenv", "B"])).exit_code == 1


@pytest.mark.container
async def test_t04_env_vars_and_files_are_there_after_a_stop(sandbox: atoll.Sandbox) -> None:
    await sandbox.exec("echo kept > f; cd /tmp; v=1")
    await sandbox.set_env_vars({"A": "1"})
    await sandbox.stop()
    assert (await sandbox.get_state()).status == "stopped"
    assert (await sandbox.exec("cat /workspace/f; echo $A")).stdout == "kept\n1\n"
    assert (await sandbox.exec("pwd; echo $v")).stdout == "/tmp\n1\n"


async def test_reading_about_a_sleeping_sandbox_does_not_wake_it(
    url: str, sandbox: atoll.Sandbox, sandbox_id: str
) -> None:
    await sandbox.exec(["true"])
    await sandbox.stop()
    async with atoll.connect(url) as env:
        listed = await env.Sandbox.list(limit=1000)
    assert sandbox_id in {info.id for info in listed.sandboxes}
    assert (await sandbox.info()).state == "stopped"
    assert (await sandbox.get_state()).status == "stopped"


@pytest.mark.beyond_gvisor("isolated sessions")
@pytest.mark.beyond_pods("isolated sessions")
@pytest.mark.container
async def test_an_isolated_session_has_its_own_view_of_processes(sandbox: atoll.Sandbox) -> None:
    outer = await sandbox.start_process(["sleep", "4646"])
    own = await sandbox.create_session(id="own", isolation=True)
    inner = await own.start_process("sleep 4747 & sleep 4747")
    await own.exec("cd /tmp; export KEPT=1")
    seen = await own.exec("pwd; echo $KEPT; pgrep -fx 'sleep 4646' || pgrep -cfx 'sleep 4747'")
    assert seen.stdout == "/tmp\n1\n2\n"
    assert (await own.exec(["kill", "-0", str(inner.pid)])).exit_code == 0
    await own.exec(f"kill -9 {outer.pid}; true")
    await sandbox.delete_session("own")
    status = {process.id: process.status for process in await sandbox.list_processes()}
    assert (status[outer.id], status[inner.id]) == ("running", "killed")
    left = await sandbox.exec(["sh", "-c", "pgrep -fx 'sleep 4747' | wc -l"])
    assert left.stdout.strip() == "0"


@pytest.mark.beyond_gvisor("isolated sessions")
@pytest.mark.beyond_pods("isolated sessions")
@pytest.mark.container
async def test_an_isolated_session_has_terminals_and_survives_a_stop(
    sandbox: atoll.Sandbox,
) -> None:
    own = await sandbox.create_session(id="own", isolation=True)
    await own.exec("cd /usr; v=kept")
    async with await own.spawn("tty; ps -o pid= -p $$", pty=True) as handle:
        text = (await handle.output()).stdout
        assert text.startswith("/dev/pts/")
        assert text.split()[-1] == str(handle.pid)
    await sandbox.stop()
    again = await sandbox.get_session("own")
    assert (await again.exec("echo $PWD $v")).stdout == "/usr kept\n"
    plain = await sandbox.exec("readlink /proc/self/ns/pid")
    assert plain.stdout != (await again.exec("readlink /proc/self/ns/pid")).stdout


async def test_a_session_ends_with_its_sandbox(sandbox: atoll.Sandbox) -> None:
    """Not with the next of its name, which a call by the old handle must neither make nor use."""
    session = await sandbox.create_session(id="s")
    assert (await session.exec("echo on")).stdout == "on\n"
    await sandbox.sleep()
    assert (await session.exec("echo on")).stdout == "on\n"
    await sandbox.destroy()
    for _ in range(2):
        with pytest.raises(atoll.StaleHandleError):
            await session.exec("echo on")
        with pytest.raises(atoll.StaleHandleError):
            await session.write_file("/tmp/f", "x")
    with pytest.raises(atoll.SandboxNotFoundError):
        await sandbox.info()
    await sandbox.create_session(id="s")
    with pytest.raises(atoll.StaleHandleError):
        await session.exec("echo on")
