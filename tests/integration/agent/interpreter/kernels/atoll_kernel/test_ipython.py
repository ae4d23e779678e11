"""On IPython, which is in the environment of the tests."""

import pytest

from integration.agent.client import Client
from integration.agent.interpreter.code import create, run


@pytest.fixture(scope="module")
def context(agent: Client) -> str:
    return create(agent)


def test_magics_and_shell_work(agent: Client, context: str) -> None:
    assert run(agent, "!echo shell", context).stdout == "shell\n"
    assert run(agent, "files = !echo a b\nlist(files)", context).text == "['a b']"
    assert run(agent, "%env SOME=1\nimport os; os.environ['SOME']", context).text == "'1'"
    assert "pip" in run(agent, "%pip --version", context).stdout


def test_displays_can_be_updated_and_cleared(agent: Client, context: str) -> None:
    code = (
        "from IPython.display import HTML, clear_output, display, update_display\n"
        "display(HTML('<b>'), display_id='d'); update_display(2, display_id='d'); clear_output()"
    )
    lines = run(agent, code, context).lines
    assert [line["type"] for line in lines] == ["display", "update", "clear"]
    assert (lines[0]["html"], lines[0]["displayId"], lines[1]["text"]) == ("<b>", "d", "2")


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import sys; sys.exit(3)", "SystemExit"),
        ("exit", "SystemExit"),
        ("input()", "StdinNotImplementedError"),
        ("if 1:", "SyntaxError"),
        ("await 1", "TypeError"),
    ],
)
def test_errors_have_no_frames_of_ours(agent: Client, context: str, code: str, name: str) -> None:
    found = run(agent, code, context)
    error = found.lines[-1]
    assert (error["type"], error["name"]) == ("error", name)
    text = "\n".join(error["traceback"])
    assert "atoll_kernel" not in text
    assert "interactiveshell" not in text
    assert run(agent, "1", context).text == "1"


def test_an_interrupted_task_does_not_go_on_in_the_next_run(agent: Client, context: str) -> None:
    code = "import asyncio\nawait asyncio.sleep(0.4)\nprint('never')"
    assert run(agent, code, context, timeout=0.1).record["timed_out"]
    assert run(agent, "await asyncio.sleep(0.5)", context).stdout == ""
