from integration.agent.client import Client
from integration.agent.interpreter.code import create, run


def test_a_kernel_starts_where_and_with_what_it_was_asked_to(agent: Client) -> None:
    id = create(agent, cwd="/usr", env={"PYTHONPATH": "/some/place", "A": "é"})
    code = "import os, sys\nos.getcwd(), os.environ['A'], sys.path[0], '/some/place' in sys.path"
    assert run(agent, code, id).text == "('/usr', 'é', '', True)"
    assert (
        run(agent, "any('kernels' in p for p in sys.path), __name__", id).text
        == "(False, '__main__')"
    )


def test_what_double_forks_is_reaped_and_ends_with_its_context(agent: Client) -> None:
    id = create(agent)
    code = (
        "import os, time\nfor _ in range(50):\n    if not (pid := os.fork()):\n"
        "        if not os.fork(): os._exit(0)\n        os._exit(0)\n    os.waitpid(pid, 0)\n"
        "time.sleep(0.3)\n"
        "sum(open(f'/proc/{p}/stat').read().split(')')[-1].split()[:2] == ['Z', str(os.getppid())]"
        " for p in os.listdir('/proc') if p.isdigit() and os.path.exists(f'/proc/{p}/stat'))"
    )
    assert run(agent, code, id).text == "0"
