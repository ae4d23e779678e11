from atoll.agent.interpreter.programs import Program
from atoll.agent.interpreter.warm import key
from atoll.agent.users import User

USER = User(1000, 1000, (), "u", "/home/u", "")
PYTHON = Program("/usr/bin/python3", [])


def test_variables_that_act_before_code_runs_need_another_process() -> None:
    plain = key(PYTHON, USER, {"A": "1"})
    assert key(PYTHON, USER, {"A": "2"}) == plain
    assert key(PYTHON, USER, {"PYTHONHASHSEED": "0"}) != plain
    assert key(PYTHON, USER, {"LD_PRELOAD": "x"}) != plain
    assert key(PYTHON, USER._replace(uid=0), {}) != plain
    assert key(Program("/opt/python", []), USER, {}) != plain
