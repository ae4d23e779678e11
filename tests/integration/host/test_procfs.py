import os
import subprocess

from atoll.host import procfs


def test_a_process_is_told_by_when_it_started_in_which_boot() -> None:
    """Its number alone may be another one's by now, also after a restart of the host."""
    with open("/proc/sys/kernel/random/boot_id") as boot:
        known = procfs.identity(os.getpid())
        assert known
        assert known.startswith(boot.read().strip())
    assert known == procfs.identity(os.getpid())
    assert known != procfs.identity(os.getppid())


def test_a_process_that_only_its_parent_has_to_note_has_ended() -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        found = procfs.stat(process.pid)
        assert found
        assert found.ended
        assert found.parent == os.getpid()
        assert procfs.identity(process.pid) is None
    assert procfs.stat(process.pid) is None


def test_a_name_that_looks_like_the_fields_behind_it_confuses_nothing() -> None:
    script = "import sys; open('/proc/self/comm', 'w').write(') Z 1 1'); print(flush=True); input()"
    words = ["python3", "-c", script]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        found = procfs.stat(process.pid)
        assert found
        assert found.parent == os.getpid()
        assert not found.ended
        process.communicate(b"\n")
