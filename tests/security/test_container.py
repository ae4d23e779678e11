"""The probes of level `container`: each holds in a real sandbox, and fails in a weakened one."""

import json
import shutil
import time
from collections.abc import Callable
from typing import Any

import pytest

from atoll.probes import program
from atoll.probes.catalogue import PROBES
from atoll.runtime.base import Mount
from atoll.runtime.oci.bundle import AGENT_DIR
from e2e.runtime.boxes import Bench, Box, weakened
from e2e.runtime.roots import ID_BASE, lower

pytestmark = pytest.mark.e2e

ALONE = [probe.function for probe in PROBES if probe.inside]
"""Probes that need no more than a sandbox to run in."""

FUNCTIONS = {function.partition(".")[2]: function for function in (*ALONE, "kernel.exhaustion")}


def run(box: Box, name: str) -> list[str]:
    function = FUNCTIONS[name]
    violations: list[str] = json.loads(box.python(program.script({function: {}})))[function]
    return violations


@pytest.mark.parametrize("name", [function.partition(".")[2] for function in ALONE])
async def test_a_probe_finds_nothing(bench: Bench, name: str) -> None:
    async with bench.running() as box:
        assert run(box, name) == []
        assert box.call("hello")["pid"] == 1


def unfiltered(config: dict[str, Any]) -> None:
    del config["linux"]["seccomp"]


def unmasked(config: dict[str, Any]) -> None:
    config["linux"]["maskedPaths"] = []
    config["linux"]["readonlyPaths"] = []


def privileged(config: dict[str, Any]) -> None:
    config["process"]["noNewPrivileges"] = False


def with_kmsg(config: dict[str, Any]) -> None:
    mount = {"destination": "/dev/kmsg", "type": "bind", "source": "/dev/kmsg", "options": ["bind"]}
    config["mounts"].append(mount)


def with_raw_sockets(config: dict[str, Any]) -> None:
    unfiltered(config)
    for held in config["process"]["capabilities"].values():
        held.append("CAP_NET_RAW")


def unchanged(config: dict[str, Any]) -> None:
    pass


WEAKENED: list[tuple[str, Callable[[dict[str, Any]], None], bool, set[str]]] = [
    ("descriptors", unchanged, False, {"follow /proc/1/fd/3", "follow /proc/1/root"}),
    ("masked_paths", unmasked, True, {"read /proc/interrupts"}),
    ("cgroup_escape", unfiltered, False, {"mount", "fsopen", "open_tree"}),
    ("address_families", unfiltered, False, {"AF_VSOCK", "NETLINK 16"}),
    ("nested_namespaces", unfiltered, False, {"unshare user", "clone user", "clone3"}),
    ("risky_calls", unfiltered, False, {"io_uring_setup", "bpf", "keyctl", "ptrace"}),
    ("read_only_mounts", unfiltered, False, {"mount"}),
    ("secrets", unchanged, False, {"read /proc/1/maps", "follow /proc/1/fd/3"}),
    ("agent_is_untouchable", unchanged, False, {"trace the agent", "write its memory"}),
    ("terminal_injection", unfiltered, False, {"TIOCSTI with 0x0", "TIOCSTI with 0x100000000"}),
    ("host_limits", unfiltered, True, {"io_setup", "huge pages of a memfd", "socket filter 26"}),
    ("schedule_of_the_agent", unchanged, False, {"sched_setaffinity", "setpriority", "ioprio_set"}),
    ("devices", with_kmsg, True, {"/dev/kmsg"}),
    ("status", privileged, False, {"one filter only"}),
    ("spoofing", with_raw_sockets, False, {"raw socket 17 3 768", "raw socket 2 3 1"}),
]


@pytest.mark.parametrize(("name", "weaken", "confine", "found"), WEAKENED)
async def test_a_probe_finds_what_was_taken_away(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    weaken: Callable[[dict[str, Any]], None],
    confine: bool,
    found: set[str],
) -> None:
    """A probe that cannot fail is worthless."""
    async with weakened(monkeypatch, weaken, confine=confine), bench.running() as box:
        assert found <= set(run(box, name))


async def test_an_agent_that_root_inside_owns_is_noticed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weakened run of probe 1: the interpreter writable, and owned by the sandbox."""
    own = bench.home / "agent"
    shutil.copytree(bench.runtime.agent.path, own)
    for path in (own, *own.rglob("*")):
        shutil.chown(path, ID_BASE, ID_BASE)

    def writable(config: dict[str, Any]) -> None:
        mount = next(m for m in config["mounts"] if m["destination"] == AGENT_DIR)
        mount |= {"source": str(own), "options": ["bind", "nosuid", "nodev"]}

    async with weakened(monkeypatch, writable), bench.running() as box:
        violations = run(box, "runtime_binary")
    assert any(violation.startswith(f"write {AGENT_DIR}/lib/python") for violation in violations)


_HANDLING = """
import os, signal
signal.signal(40, lambda *_: os._exit(1))
change, mask = signal.signal, signal.pthread_sigmask
signal.signal = lambda number, handler: change(number, handler) if number != 40 else None
signal.pthread_sigmask = lambda how, which: mask(how, {*which} - {40})
"""


async def test_an_agent_with_a_handler_for_signals_is_noticed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weakened run of signals: the kernel keeps from pid 1 what it has no handler for."""

    def handling(config: dict[str, Any]) -> None:
        config["process"]["args"][-1] = _HANDLING + config["process"]["args"][-1]

    async with weakened(monkeypatch, handling), bench.running() as box:
        with pytest.raises(EOFError):
            run(box, "signals")


async def test_a_socket_of_the_host_is_noticed(bench: Bench) -> None:
    """The weakened run of probe 10."""
    shared = bench.home / "sockets"
    shared.mkdir()
    import socket

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(shared / "docker.sock"))
        mounts = (Mount(source=shared, target="/run/host"),)
        async with bench.running(mounts=mounts) as box:
            assert run(box, "sockets_of_the_host") == ["socket /run/host/docker.sock"]


@pytest.mark.parametrize(("pids", "found"), [(64, 0), (512, 1)])
async def test_processes_have_an_end(bench: Bench, pids: int, found: int) -> None:
    """19: with a higher limit the same probe finds one violation."""
    async with bench.running(pids=pids) as box:
        assert len(run(box, "exhaustion")) == found


ATTACKS = {
    "fork bomb": ":(){ :|:& };:; sleep 20",
    "busy loops": "for i in $(seq 64); do while :; do :; done & done; sleep 20",
    "memory": "tail /dev/zero",
    "descriptors": "for i in $(seq 60); do sleep 20 </dev/zero & done; sleep 20",
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_the_agent_answers_within_a_second_during_an_attack(
    bench: Bench, attack: str
) -> None:
    """L12: and the sandbox can be removed."""
    async with bench.running(pids=100, cpu=0.5, memory=128 << 20) as box:
        with box.start(["/bin/sh", "-c", ATTACKS[attack]], timeout=20.0):
            time.sleep(0.5)
            took = []
            for _ in range(5):
                began = time.monotonic()
                assert box.call("hello")["pid"] == 1
                took.append(time.monotonic() - began)
    assert max(took) < 1.0


async def test_the_image_is_unchanged_after_a_run(bench: Bench) -> None:
    """7: whatever is written inside lands in the sandbox's own layer."""

    def state() -> dict[str, tuple[int, int, int]]:
        top = lower("busybox")
        listed = {path: path.lstat() for path in (top, *top.rglob("*"))}
        return {str(p): (s.st_mtime_ns, s.st_size, s.st_mode) for p, s in listed.items()}

    before = state()
    async with bench.running() as box:
        box.sh("rm -rf /etc; echo x > /bin/busybox; chmod 777 /root; mkdir /etc; touch /new")
    assert state() == before


async def test_a_user_who_is_not_root_has_no_capability(bench: Bench) -> None:
    async with bench.running() as box:
        told = box.sh("grep ^Cap /proc/self/status; id -u", user="1000:1000").split()
    capabilities = dict(zip(told[0:10:2], told[1:10:2], strict=True))
    assert {name: int(value, 16) for name, value in capabilities.items()} | {"CapBnd:": 0} == {
        "CapInh:": 0, "CapPrm:": 0, "CapEff:": 0, "CapBnd:": 0, "CapAmb:": 0,
    }  # fmt: skip
    assert told[10] == "1000"
