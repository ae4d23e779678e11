import os
import signal

import pytest

from atoll import errors
from atoll.agent.interpreter.started import ended
from integration.agent.client import Client
from integration.agent.interpreter.code import PATH, create, run


def test_a_wait_status_is_told_as_that_of_a_command() -> None:
    assert ended(3 << 8) == {"exitCode": 3, "signal": None}
    assert ended(signal.SIGKILL) == {"exitCode": 137, "signal": "SIGKILL"}


def test_an_interpreter_that_cannot_run_is_a_typed_error(agent: Client, tmp_path: object) -> None:
    folder = str(tmp_path)
    for name, script in (
        ("python3", "#!/bin/sh\necho broken >&2; exit 3\n"),
        ("node", "#!/none\n"),
    ):
        with open(os.path.join(folder, name), "w") as file:
            file.write(script)
        os.chmod(file.name, 0o755)
    with pytest.raises(errors.InterpreterNotReadyError) as failure:
        create(agent, env={"PATH": f"{folder}:{PATH}"})
    assert "broken" in str(failure.value)
    with pytest.raises(errors.SandboxError) as failed:
        create(agent, language="js", env={"PATH": f"{folder}:{PATH}"})
    assert failed.value.code in {"COMMAND_NOT_FOUND", "INTERPRETER_NOT_READY"}
    assert run(agent, "1", create(agent)).text == "1"
