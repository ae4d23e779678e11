from atoll.wire.frames import Kind
from integration.agent.client import Client, alive, control, eventually
from integration.agent.interpreter.code import create, gather, run, start


def test_runs_of_a_context_are_one_after_the_other(agent: Client) -> None:
    id = create(agent)
    with (
        start(agent, "import time; time.sleep(0.3); order = ['a']", id) as first,
        start(agent, "order.append('b'); order", id) as second,
    ):
        assert gather(first).record["exit_code"] == 0
        assert gather(second).text == "['a', 'b']"


def test_a_run_that_waits_can_be_cancelled(agent: Client) -> None:
    id = create(agent)
    with (
        start(agent, "import time; time.sleep(30)", id, id="op-first") as first,
        start(agent, "never = 1", id, id="op-waits") as second,
    ):
        first.until(Kind.STARTED)
        control(agent, "op-waits", (Kind.CANCEL, b""))
        assert gather(second).record["code"] == "OPERATION_INTERRUPTED"
        control(agent, "op-first", (Kind.CANCEL, b""))
        record = gather(first).record
    assert (record["cancelled"], record["restarted"]) == (True, False)
    missing = run(agent, "never", id)
    assert missing.lines[-1]["name"] == "NameError"


def test_what_does_not_listen_to_an_interrupt_is_replaced(agent: Client) -> None:
    id = create(agent)
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    record = run(agent, code, id, timeout=0.2).record
    assert (record["timed_out"], record["restarted"]) == (True, True)
    assert run(agent, "1", id).text == "1"


def test_a_kernel_that_died_between_two_runs_is_told_by_the_next(agent: Client) -> None:
    id = create(agent)
    run(agent, "import threading, os; threading.Timer(0.2, os._exit, (5,)).start()", id)
    for _ in range(100):
        record = run(agent, "import time; time.sleep(0.05)", id).record
        if record.get("code") == "KERNEL_DIED":
            break
    assert record["context"]["exitCode"] == 5
    assert run(agent, "1", id).text == "1"


def test_deleting_a_context_ends_what_runs_and_what_it_left(agent: Client) -> None:
    id = create(agent)
    code = "import subprocess; subprocess.Popen(['setsid', 'sleep', '600']).pid"
    pid = int(str(run(agent, code, id).text))
    with start(agent, "import time; time.sleep(60)", id) as running:
        running.until(Kind.STARTED)
        agent.call("code.delete", context=id)
        assert gather(running).record["code"] == "KERNEL_DIED"
    eventually(lambda: not alive(pid))
