from integration.agent.client import Client, eventually, parent, tree
from integration.agent.interpreter.code import create, run


def test_kernels_outlive_the_process_they_were_forked_from(agent: Client) -> None:
    id = create(agent)
    code = "import os; os.getpid(), os.getppid()"
    kernel, keeper = eval(str(run(agent, code, id).text))
    warm = parent(keeper)
    create(agent, env={"PYTHONHASHSEED": "7"})  # needs another one, so this one is let go
    eventually(lambda: warm not in tree(agent.pid))
    assert eval(str(run(agent, code, id).text))[0] == kernel
