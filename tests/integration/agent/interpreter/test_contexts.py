import os
import signal

import pytest

from atoll import errors
from integration.agent.client import Client, eventually, parent
from integration.agent.interpreter.code import create, gather, run, start


def test_contexts_are_listed_until_they_are_deleted(agent: Client) -> None:
    id = create(agent, language="python3", cwd="/tmp")
    (found,) = [one for one in agent.call("code.list")["contexts"] if one["id"] == id]
    assert (found["language"], found["cwd"]) == ("python", "/tmp")
    agent.call("code.delete", context=id)
    assert id not in [one["id"] for one in agent.call("code.list")["contexts"]]
    assert run(agent, "1", id).record["code"] == "CONTEXT_NOT_FOUND"


def test_an_id_is_a_run_once_and_its_outcome_again(agent: Client) -> None:
    id = create(agent)
    first = run(agent, "print('once'); n = globals().get('n', 0) + 1; n", id, id="op-1")
    again = run(agent, "print('once'); n = globals().get('n', 0) + 1; n", id, id="op-1")
    assert (first.text, again.text) == ("1", "1")
    assert again.stdout == "once\n"
    assert run(agent, "other", id, id="op-1").record["code"] == "IDEMPOTENCY_CONFLICT"


def test_runs_are_among_the_operations(agent: Client) -> None:
    id = create(agent)
    with start(agent, "input", id, id="op-listed") as connection:
        gather(connection)
    eventually(
        lambda: (
            {one["id"]: one["running"] for one in agent.call("operations")["operations"]}.get(
                "op-listed"
            )
            is False
        )
    )


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"language": "cobol"}, "INVALID_LANGUAGE"),
        ({"env": {"PATH": "/nowhere"}}, "PYTHON_NOT_AVAILABLE"),
        ({"env": {"PATH": "/nowhere"}, "language": "js"}, "JAVASCRIPT_NOT_AVAILABLE"),
        ({"cwd": "/no/such/place"}, "FILE_NOT_FOUND"),
        ({"env": {"a=b": "c"}}, "VALIDATION_FAILED"),
        ({"variables": {"f": {"parquet": "AA=="}}}, "VALIDATION_FAILED"),
    ],
)
def test_a_context_that_cannot_be_made_leaves_nothing(
    agent: Client, fields: dict[str, object], code: str
) -> None:
    before = _ids(agent)
    with pytest.raises(errors.SandboxError) as failure:
        create(agent, **fields)
    assert failure.value.code == code
    eventually(lambda: _ids(agent) <= before)


def test_a_killed_host_is_a_typed_error_and_contexts_can_be_made_again(agent: Client) -> None:
    id = create(agent)
    host = int(str(run(agent, "import os; os.getpid()", id).text))
    while parent(host) != agent.pid:
        host = parent(host)
    with start(agent, "import time; time.sleep(60)", id, id="op-lost") as connection:
        connection.frame()
        os.kill(host, signal.SIGKILL)
        assert not list(connection)
    eventually(lambda: agent.call("code.list")["contexts"] == [])
    with agent.connect() as connection:
        connection.header(op="attach", id="op-lost")
        assert gather(connection).record["code"] == "KERNEL_DIED"
    assert run(agent, "1 + 1", create(agent)).text == "2"


def _ids(agent: Client) -> set[str]:
    return {one["id"] for one in agent.call("code.list")["contexts"]}
