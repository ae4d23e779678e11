import json

import pytest

from atoll.errors import ContainerUnavailableError
from atoll.runtime.oci.verdict import verdict


def log(*messages: tuple[str, str]) -> str:
    return "\n".join(json.dumps({"level": level, "msg": msg}) for level, msg in messages)


def test_exit_code_zero_is_success_whatever_the_log_says() -> None:
    assert verdict("runc", "run", 0, log(("error", "boom"))) is None


def test_the_last_error_explains_the_failure() -> None:
    told = log(("error", "inner"), ("warning", "noise"), ("error", "outer: inner"), ("info", "bye"))
    error = verdict("runc", "run", 1, told)
    assert isinstance(error, ContainerUnavailableError)
    assert error.message == "runc run failed with 1: outer: inner"
    assert error.context == {
        "reason": "runtime", "runtime": "runc", "verb": "run", "exit_code": 1,
    }  # fmt: skip


@pytest.mark.parametrize("line", ["plain text", "[1]", '"text"', '{"level":"error"}', "{", "null"])
def test_lines_that_say_nothing_are_skipped(line: str) -> None:
    error = verdict("runc", "run", 1, line, stderr="exec failed\n")
    assert error is not None
    assert error.message == "runc run failed with 1: exec failed"


def test_a_signal_is_named_as_one() -> None:
    error = verdict("crun", "run", -9, "")
    assert error is not None
    assert error.message == "crun run was killed by signal 9"
    assert error.suggestion is None


def test_known_reasons_come_with_what_to_do() -> None:
    error = verdict("runc", "run", 1, log(("fatal", "write /x: No space left on device")))
    assert error is not None
    assert "full" in str(error.suggestion)


def test_paths_of_the_host_are_not_told() -> None:
    told = log(("error", "mount /state/run/x/rootfs/etc/hosts from /state/run/x/hosts: no"))
    private = {"/state": "(state)", "/state/run/x/rootfs": "", "/state/run/x": "(run)"}
    error = verdict("runc", "run", 1, told, private=private)
    assert error is not None
    assert error.message == "runc run failed with 1: mount /etc/hosts from (run)/hosts: no"
