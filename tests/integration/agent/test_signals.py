import os
import signal
import subprocess
import sys

SENT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGRTMIN)


def test_what_root_inside_can_send_ends_nothing() -> None:
    code = (
        "from atoll.agent.signals import ignore_signals; ignore_signals();"
        "print('ready', flush=True); input(); print('alive')"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        for number in SENT:
            os.kill(process.pid, number)
        told, _ = process.communicate(b"\n", timeout=20)
    assert told == b"alive\n"
