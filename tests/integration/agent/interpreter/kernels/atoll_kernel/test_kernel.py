from integration.agent.client import Client
from integration.agent.interpreter.code import create, run


def test_variables_of_a_run_are_gone_after_it(agent: Client) -> None:
    id = create(agent, env={"OWN": "1"})
    code = "import os; os.environ.get('OWN'), os.environ.get('RUN')"
    assert run(agent, code, id, env={"RUN": "2", "OWN": None}).text == "(None, '2')"
    assert run(agent, code, id).text == "('1', None)"


def test_closed_descriptors_are_there_again_for_the_next_run(agent: Client) -> None:
    id = create(agent)
    assert run(agent, "import os; os.closerange(0, 21); print('on')", id).stdout == "on\n"
    assert run(agent, "os.system('echo next');", id).stdout == "next\n"


def test_executions_are_counted(agent: Client) -> None:
    id = create(agent)
    counts = [run(agent, code, id).record["execution_count"] for code in ("1", "1/0", "x =")]
    assert counts == [1, 2, 3]
