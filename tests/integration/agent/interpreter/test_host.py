import concurrent.futures
import time

from integration.agent.client import Client, eventually, tree
from integration.agent.interpreter.code import create, run


def test_contexts_are_made_side_by_side_from_one_warm_process(agent: Client) -> None:
    create(agent)  # the imports
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        ids = list(pool.map(lambda _: create(agent), range(10)))
    assert len(set(ids)) == 10
    assert time.monotonic() - start < 10  # one second on an idle machine
    pids = {run(agent, "import os; os.getpid()", id).text for id in ids}
    assert len(pids) == 10


def test_random_numbers_differ_between_contexts(agent: Client) -> None:
    code = "import random, uuid; random.random(), str(uuid.uuid4())"
    assert run(agent, code, create(agent)).text != run(agent, code, create(agent)).text


def test_memory_of_deleted_contexts_is_returned(agent: Client) -> None:
    create(agent)
    before = len(tree(agent.pid))
    ids = [create(agent) for _ in range(5)]
    for id in ids:
        agent.call("code.delete", context=id)
    eventually(lambda: len(tree(agent.pid)) <= before)


def test_another_environment_before_the_start_has_a_process_of_its_own(agent: Client) -> None:
    plain, optimized = create(agent), create(agent, env={"PYTHONOPTIMIZE": "1"})
    code = "import sys; sys.flags.optimize"
    assert [run(agent, code, id).text for id in (plain, optimized)] == ["0", "1"]


def test_variables_are_described_by_the_kernel(agent: Client) -> None:
    id = create(agent, variables={"given": {"json": {"a": 1}}})
    run(agent, "import os\nmade = [1, 2]", id)
    found = agent.call("code.variables", context=id)["variables"]
    assert [one["name"] for one in found] == ["given", "made"]


def test_javascript_contexts_end_with_all_they_left(agent: Client) -> None:
    before = len(tree(agent.pid))
    id = create(agent, language="js")
    code = "require('child_process').spawn('sleep', ['600'], {detached: true}).pid > 0"
    assert run(agent, code, id).text == "true"
    agent.call("code.delete", context=id)
    eventually(lambda: len(tree(agent.pid)) <= before)
