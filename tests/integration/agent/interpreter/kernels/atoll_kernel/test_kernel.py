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


SECOND = """
import os, signal
class First(KeyboardInterrupt):
    def __str__(self):
        os.kill(os.getpid(), signal.SIGINT)
        return "the first"
raise First
"""


def test_an_interrupt_while_another_is_reported_does_not_lose_the_report(agent: Client) -> None:
    id = create(agent)
    (told,) = run(agent, SECOND, id).lines
    assert (told["type"], told["name"]) == ("error", "KeyboardInterrupt")
    assert run(agent, "1 + 1", id).text == "2"


AMID = """
import os, signal, sys
(Channel,) = {module.Channel for name, module in sys.modules.items() if name.endswith(".channel")}
send = Channel.send
def interrupted(self, *message):
    os.kill(os.getpid(), signal.SIGINT)
    Channel.send = send
    send(self, *message)
Channel.send = interrupted
"shown"
"""


def test_a_result_is_sent_whole_and_the_interrupt_comes_after_it(agent: Client) -> None:
    id = create(agent)
    shown, error = run(agent, AMID, id).lines
    assert shown["text"] == "'shown'"
    assert error["name"] == "KeyboardInterrupt"
    assert run(agent, "1 + 1", id).text == "2"
