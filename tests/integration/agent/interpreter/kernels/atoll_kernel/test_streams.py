from integration.agent.client import Client, eventually
from integration.agent.interpreter.code import create, run


def test_what_a_thread_prints_is_tagged_with_the_run_that_started_it(agent: Client) -> None:
    id = create(agent)
    code = (
        "import threading\ngo = threading.Event()\n"
        "threading.Thread(target=lambda: (go.wait(), print('late'))).start()"
    )
    first = run(agent, code, id)
    second = run(agent, "go.set()\nimport time; time.sleep(0.3)\nprint('own')", id)
    assert second.stdout == "own\n"
    late: list[dict[str, object]] = [line for line in second.lines if line["type"] == "late"]

    def told() -> bool:
        late.extend(line for line in run(agent, "1", id).lines if line["type"] == "late")
        return "".join(str(line["text"]) for line in late) == "late\n"

    eventually(told)
    assert late[0]["executionCount"] == first.record["execution_count"]


def test_c_code_and_children_write_to_the_run(agent: Client) -> None:
    id = create(agent)
    code = (
        "import ctypes, os, sys\nctypes.CDLL(None).puts(b'c')\nos.system('echo child')\n"
        "print('py'); sys.stdout.buffer.write(b'raw\\n')"
    )
    assert sorted(run(agent, code, id).stdout.split()) == ["c", "child", "py", "raw"]


def test_bytes_that_are_no_text_are_printed_as_far_as_they_can(agent: Client) -> None:
    id = create(agent)
    found = run(agent, "import sys\nprint('\\ud800', file=sys.stderr)\nprint('ok')", id)
    assert found.stdout == "ok\n"
    assert found.record["stderr_bytes"] == len("\\ud800\n")
