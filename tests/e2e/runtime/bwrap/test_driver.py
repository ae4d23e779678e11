"""Sandboxes of a user who is not root: the engine is one of that user, started by these tests."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import atoll
from atoll.errors import NotSupportedByRuntimeError, RuntimeNotAvailableError
from atoll.probes.catalogue import PROBES
from atoll.probes.run import Verdict, run
from atoll.probes.site import Site

Host = Any


BOMB = "import os, time\nwhile True:\n try: os.fork()\n except OSError: time.sleep(1)"


def nobody_is_left(host: Host) -> None:
    """Bubblewrap itself ends a moment after its sandbox."""
    until = time.monotonic() + 20
    while left := host.processes():
        assert time.monotonic() < until, [Path(f"/proc/{p}/stat").read_text()[:60] for p in left]
        time.sleep(0.01)


def inside(host: Host) -> list[int]:
    """Processes in sandboxes: those that are pid 1, and their descendants."""
    tops = [pid for pid in host.processes() if _nested(pid)]
    assert tops
    return tops


def _nested(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    return len(next(line for line in status.splitlines() if line.startswith("NSpid")).split()) > 2


def test_a_user_without_root_has_a_sandbox_and_nothing_is_left_of_it(host: Host) -> None:
    box = host.box("first")
    told = box.exec("id -u; cat /proc/1/cmdline | tr '\\0' ' '; echo; hostname; ls /sys")
    uid, command, hostname, sys = told.stdout.split("\n")[:4]
    assert (uid, hostname, sys) == ("0", "first", "devices")
    assert "/dev/.atoll/bin/python" in command
    assert (box.info().isolation, box.info().runtime) == ("bwrap", "bwrap")
    assert [one.isolation for one in host.env.Sandbox.list()] == ["bwrap"]
    assert box.metrics().isolation == "bwrap"
    assert box.info().unlimited == ["cpu", "disk"]
    assert host.processes()
    box.destroy()
    nobody_is_left(host)
    assert [*(host.state_dir / "bwrap").iterdir(), *(host.state_dir / "run").iterdir()] == []
    assert [path.name for path in (host.state_dir / "layers").iterdir()] == [".snapshots"]


def test_a_killed_engine_finds_its_sandbox_with_its_processes(host: Host) -> None:
    box = host.box("kept")
    pid = box.exec("sleep 300 & echo $!").stdout.strip()
    os.kill(host.pid, signal.SIGKILL)
    host.stop()
    host.start()
    box = host.box("kept")
    assert box.exec(f"kill -0 {pid} && echo alive").stdout == "alive\n"
    box.destroy()
    nobody_is_left(host)


def test_files_survive_sleep_and_processes_a_freeze(host: Host) -> None:
    box = host.box("sleeper", sleep_mode="freeze")
    pid = box.exec("echo kept > /workspace/file; rm /etc/issue; sleep 300 & echo $!").stdout.strip()
    box.sleep()
    assert box.info().state == "frozen"
    assert {Path(f"/proc/{pid}/stat").read_text().split()[2] for pid in inside(host)} == {"T"}
    assert box.exec(f"cat /workspace/file; kill -0 {pid} && echo alive").stdout == "kept\nalive\n"
    box.stop()
    nobody_is_left(host)
    assert box.exec("cat /workspace/file; ls /etc/issue 2>&1 | wc -l").stdout == "kept\n1\n"
    box.destroy()


def test_links_left_by_root_inside_lead_the_next_start_nowhere(host: Host) -> None:
    """Bubblewrap follows links at mount points, while it still sees the host's files."""
    trap = host.user.home / "trap"
    trap.mkdir()
    os.chown(trap, host.user.home.stat().st_uid, -1)
    box = host.box("hostile")
    for top in (str(trap), f"/oldroot{trap}", f"/proc/self/cwd{trap}"):
        box.exec(
            f"rm -rf /etc.new; cp -a /etc /etc.new; mv /etc /etc.old; ln -s {top} /etc;"
            f"rmdir /workspace/x; rm -rf /sys2; mv /run /run.old; ln -s {top} /run"
        )
        box.stop()
        assert box.exec("echo up; readlink /etc || true").stdout == "up\n"
        assert list(trap.iterdir()) == []
    box.destroy()


def test_level_container_is_refused_with_a_way_to_it(host: Host) -> None:
    with pytest.raises(RuntimeNotAvailableError) as raised:
        host.box("other", runtime="container").exec("true")
    assert raised.value.context["available"] == ["bwrap"]
    assert "root" in str(raised.value.suggestion)


def test_many_at_once_start_and_go(host: Host) -> None:
    def life(number: int) -> str:
        box = host.box(f"many-{number}")
        try:
            return str(box.exec("hostname").stdout.strip())
        finally:
            box.destroy()

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(life, range(8))) == sorted(f"many-{n}" for n in range(8))
    nobody_is_left(host)


def test_limits_hold_without_a_cgroup_and_leave_the_agent_alone(host: Host) -> None:
    box = host.box("greedy")
    box.start_process(["python3", "-c", BOMB])
    until = time.monotonic() + 30
    while box.metrics().pids < box.metrics().limits.pids - 8:
        assert time.monotonic() < until
    assert box.exec(["/bin/echo", "served"]).stdout == "served\n"
    box.destroy()
    nobody_is_left(host)
    large = box.exec(["python3", "-c", "bytearray(3 << 30)"])
    assert (large.exit_code, "MemoryError" in large.stderr) == (1, True)
    box.destroy()


def test_another_user_than_root_is_a_typed_error(host: Host) -> None:
    box = host.box("users")
    session = box.create_session(user="1000")
    calls: list[Callable[[], Any]] = [
        lambda: session.exec(["true"]),
        lambda: session.read_file("/etc/issue"),
    ]
    for call in calls:
        with pytest.raises(NotSupportedByRuntimeError) as raised:
            call()
        assert "root is the only user" in str(raised.value.suggestion)
    box.destroy()


def test_root_inside_cannot_trace_the_agent(host: Host) -> None:
    box = host.box("tracer")
    script = "import ctypes; print(ctypes.CDLL(None).ptrace(0x4206, 1, 0, 0))"  # PTRACE_SEIZE
    assert box.exec(["python3", "-c", script]).stdout == "-1\n"
    for path in ("environ", "mem", "fd/3", "root/etc"):
        assert box.exec(f"cat /proc/1/{path} || ls /proc/1/{path}/").exit_code != 0
    box.destroy()


HOG = """
import os, time
for _ in range(6):
    if os.fork() == 0:
        held = b"x" * (120 << 20)
        time.sleep(60)
os.wait()
os.kill(0, 9)
"""


def test_memory_of_a_sandbox_as_a_whole_is_bounded_and_the_reason_told(host: Host) -> None:
    """Each process stays below what one may map; only their sum is too much."""
    size = atoll.CustomInstance(vcpu=1, memory_mib=256, disk_mb=1000)
    box = host.box("hog", instance_type=size)
    done = box.exec(["python3", "-c", HOG])
    assert (done.exit_code != 0, done.oom_killed) == (True, True)
    assert box.exec(["echo", "served"]).stdout == "served\n"
    assert not box.exec(["true"]).oom_killed
    box.exec("for pid in 1 2 3; do echo 1000 > /proc/$pid/oom_score_adj; done")  # protects nobody
    assert box.exec(["python3", "-c", HOG]).oom_killed
    box.destroy()
    nobody_is_left(host)


def test_no_file_grows_beyond_the_disk_of_its_sandbox(host: Host) -> None:
    size = atoll.CustomInstance(vcpu=1, memory_mib=256, disk_mb=50)
    box = host.box("disk", instance_type=size)
    done = box.exec(["dd", "if=/dev/zero", "of=/workspace/big", "bs=1M", "count=200"])
    assert done.exit_code != 0
    assert box.exec("stat -c %s /workspace/big").stdout == f"{50_000_000}\n"
    box.destroy()


def test_every_probe_from_inside_holds(host: Host) -> None:
    site = Site({"socket": host.socket, "pid": host.pid}, host.state_dir)
    inside = [probe for probe in PROBES if probe.inside]
    findings = list(run(site, "bwrap", inside))
    assert len(findings) == len(inside)
    assert {one.probe: one.seen for one in findings if one.verdict is not Verdict.PASS} == {}
    site.clear()
    site.client.close()
    nobody_is_left(host)
