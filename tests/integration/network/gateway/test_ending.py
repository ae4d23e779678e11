import os
import shlex
import subprocess
import sys
from pathlib import Path

from atoll.network.gateway import ending
from integration.server.engines import eventually

PROGRAM = "import sys, time; time.sleep(float(sys.argv[1]))"


def argv(logs: Path, seconds: float) -> list[str]:
    """Return the command line of something that looks like a gateway."""
    words = [PROGRAM, str(seconds), "atoll.network.gateway", "--logs", str(logs)]
    return [sys.executable, "-S", "-c", *words]


def somebodys(logs: Path) -> int:
    """Start one that is nobody's child here."""
    shell = f"{shlex.join(argv(logs, 60))} >/dev/null 2>&1 & echo $!"
    return int(subprocess.run(["sh", "-c", shell], stdout=subprocess.PIPE, check=True).stdout)


def test_a_gateway_of_an_earlier_engine_is_told_apart_by_its_logs(tmp_path: Path) -> None:
    pid = somebodys(tmp_path / "mine")
    eventually(lambda: ending.is_gateway(pid, tmp_path / "mine"))
    ending.end(pid, tmp_path / "other")
    assert ending.is_gateway(pid, tmp_path / "mine")
    ending.end(pid, tmp_path / "mine")
    assert not ending.is_gateway(pid, tmp_path / "mine")
    assert not ending.is_gateway(os.getpid(), tmp_path / "mine")


def test_a_child_is_ended_from_its_first_moment_on(tmp_path: Path) -> None:
    made = subprocess.Popen(argv(tmp_path, 60))
    ending.end(made.pid, tmp_path)
    assert not Path(f"/proc/{made.pid}").exists()
    ending.end(made.pid, tmp_path)
    made.wait()


def test_one_that_ends_by_itself_is_waited_for(tmp_path: Path) -> None:
    made = subprocess.Popen(argv(tmp_path, 0))
    ending.end(made.pid, tmp_path, 30)
    assert not Path(f"/proc/{made.pid}").exists()
    made.wait()
