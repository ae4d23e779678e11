import resource
import subprocess

from atoll.engine.egress.bounds import ProcessBounds


def test_the_gateway_of_a_user_is_held_by_a_limit_of_its_process() -> None:
    with subprocess.Popen(["sleep", "60"]) as running:
        try:
            ProcessBounds(64 << 20).hold(running.pid)
            assert resource.prlimit(running.pid, resource.RLIMIT_DATA) == (64 << 20, 64 << 20)
        finally:
            running.kill()
    ProcessBounds(64 << 20).hold(running.pid)  # one that ended is left alone
