"""Sandboxes of a user who was given a control group, on this kernel.

Freezing and killing are the kernel's for every group; limits are tried with what controllers version 2
has here: all, or on a host where version 1 has them none.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import rootless
from atoll.probes.catalogue import PROBES
from atoll.probes.run import Verdict, run
from atoll.probes.site import Site
from atoll.runtime.bwrap import groups
from atoll.runtime.oci import cgroup_files as files

Host = Any

STOPPER = """
import signal, time
seen = []
signal.signal(signal.SIGCONT, lambda *_: seen.append(1))
open("/workspace/ready", "w").close()
while True:
    time.sleep(0.02)
    open("/workspace/seen", "w").write(str(len(seen)))
    open("/workspace/alive", "w").write(str(time.monotonic()))
"""


@pytest.fixture
def part() -> Iterator[Path]:
    with rootless.delegated() as found:
        yield found


@pytest.fixture
def host(lent: rootless.User, part: Path) -> Iterator[Any]:
    from e2e.runtime.bwrap.conftest import Rootless

    found = Rootless(lent)
    found.start(part)
    yield found
    found.stop()
    for pid in rootless.processes():  # those that outlive it keep its group
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def of_sandbox(part: Path) -> Path:
    [found] = (path for path in (part / "sandboxes").iterdir() if path.is_dir())
    return found


def test_each_sandbox_is_in_a_group_of_its_own_and_nothing_is_left_of_it(
    host: Host, part: Path
) -> None:
    assert host.pid in files.pids(part / groups.ENGINE)
    assert (part / "cgroup.procs").read_text() == ""
    box = host.box("first")
    box.start_process(["sleep", "300"])
    group = of_sandbox(part)
    names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in files.pids(group / "user")}
    assert names == {"sleep"}
    assert set(files.pids(group)) == set(host.processes()) & set(files.pids(part))
    assert len(files.pids(group / "agent")) >= 2
    box.destroy()
    assert not group.exists()


def test_a_freeze_is_the_kernels_and_nobody_inside_can_tell(host: Host, part: Path) -> None:
    box = host.box("sleeper", sleep_mode="freeze")
    box.start_process(["python3", "-c", STOPPER])
    box.exec("until [ -e /workspace/ready ]; do sleep 0.02; done")
    group = of_sandbox(part)
    box.sleep()
    assert box.info().state == "frozen"
    assert files.keyed(group / "cgroup.events")["frozen"] == 1
    states = {Path(f"/proc/{pid}/stat").read_text().split()[2] for pid in files.pids(group)}
    assert "T" not in states
    assert box.exec("cat /workspace/seen").stdout == "0"
    assert files.keyed(group / "cgroup.events")["frozen"] == 0
    box.destroy()


def test_a_frozen_sandbox_is_ended_and_a_later_engine_finds_its_group(
    host: Host, part: Path
) -> None:
    box = host.box("kept", sleep_mode="freeze")
    pid = box.exec("sleep 300 & echo $!").stdout.strip()
    box.sleep()
    os.kill(host.pid, signal.SIGKILL)
    host.stop()
    host.start(part / groups.ENGINE)  # as systemd starts one again: DelegateSubgroup=engine
    box = host.box("kept")
    assert box.exec(f"kill -0 {pid} && echo alive").stdout == "alive\n"
    group = of_sandbox(part)
    box.sleep()
    box.destroy()
    assert not group.exists()


def test_limits_in_force_are_those_of_the_controllers_that_were_given(
    host: Host, part: Path
) -> None:
    box = host.box("told")
    box.exec("true")
    has = (part / "cgroup.controllers").read_text().split()
    assert box.info().unlimited == (["disk"] if "cpu" in has else ["cpu", "disk"])
    assert set(groups.held(of_sandbox(part))) == {"memory", "pids", "cpu"} & set(has)
    assert box.metrics().pids > 0
    box.destroy()


def test_an_engine_that_died_before_a_sandbox_had_begun_leaves_no_group(
    host: Host, part: Path
) -> None:
    box = host.box("half")
    box.exec("true")
    group = of_sandbox(part)
    [record] = (host.state_dir / "bwrap").iterdir()
    os.kill(host.pid, signal.SIGKILL)
    host.stop()
    record.write_text(record.read_text().replace('"pid":', '"was":'))
    host.start(part / groups.ENGINE)
    assert host.box("half").exec("echo again").stdout == "again\n"
    until = time.monotonic() + 20
    while group.exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    host.box("half").destroy()


def test_every_probe_from_inside_holds_in_a_group_too(host: Host) -> None:
    site = Site({"socket": host.socket, "pid": host.pid}, host.state_dir)
    findings = list(run(site, "bwrap", [probe for probe in PROBES if probe.inside]))
    assert findings
    assert {one.probe: one.seen for one in findings if one.verdict is not Verdict.PASS} == {}
    site.clear()
    site.client.close()
