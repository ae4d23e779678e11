"""What SECURITY.md says of each process is what the kernel says of those that run."""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from atoll.runtime.oci.bundle import COMMAND_CAPABILITIES
from e2e.hosts import SANDBOXES, Host
from integration.buckets import BUCKET, Server, serving
from integration.server.engines import EngineProcess
from security.test_secrets import Planted, ask, told_by_processes

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

BOX = SANDBOXES + "/box"
DOCUMENT = Path(__file__).parents[2] / "SECURITY.md"
HEADING = "### As the kernel sees them"
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID",
    "SETUID", "SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN",
    "NET_RAW", "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE",
    "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME",
    "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
)  # fmt: skip
"""By their numbers."""
COMMANDS = frozenset(name.removeprefix("CAP_") for name in COMMAND_CAPABILITIES)


class Seen(NamedTuple):
    """A row of the table, in its words."""

    process: str
    ids: str
    in_force: str
    bounding: str
    no_new_privileges: str
    filters: str
    namespaces: str
    core_dumps: str


def documented() -> set[Seen]:
    table = DOCUMENT.read_text().partition(HEADING)[2].partition("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line[:1] == "|"]
    return {Seen(*(cell.strip() for cell in cells)) for cells in lines[2:]}


class Process:
    """What /proc says of one, compared with the engine."""

    def __init__(self, pid: int, engine: "Process | None" = None) -> None:
        self.pid, self.engine = pid, engine or self
        self.place = Path(f"/proc/{pid}")
        self.command = self.place.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode()
        lines = self.place.joinpath("status").read_text().splitlines()
        self.status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        self.parent = int(self.status["PPid"])

    def row(self, process: str) -> Seen:
        core = re.search(r"core file size +(\w+) +(\w+)", self.place.joinpath("limits").read_text())
        assert core
        return Seen(
            process=process,
            ids=self._ids(),
            in_force=self._capabilities("CapEff"),
            bounding=self._capabilities("CapBnd"),
            no_new_privileges="yes" if self.status["NoNewPrivs"] == "1" else "no",
            filters=self.status["Seccomp_filters"],
            namespaces=self._namespaces(),
            core_dumps="no" if core.groups() == ("0", "0") else "yes",
        )

    def _ids(self) -> str:
        """All four of a kind are the same, or nothing is said of them."""
        (uid,), (gid,) = ({*self.status[name].split()} for name in ("Uid", "Gid"))
        return "root" if uid == gid == "0" else "others" if int(uid) > 65_536 < int(gid) else uid

    def _capabilities(self, kind: str) -> str:
        held, most = int(self.status[kind], 16), int(self.engine.status["CapBnd"], 16)
        if held in {0, most}:
            return "as started" if held else "none"
        names = {name for number, name in enumerate(CAPABILITIES) if held >> number & 1}
        more = sorted(names - COMMANDS)
        assert names >= COMMANDS
        return " + ".join(["of commands", *more])

    def _namespaces(self) -> str:
        own = [name for name in NAMESPACES if self._of(name) != self.engine._of(name)]
        return "all" if len(own) == len(NAMESPACES) else " ".join(own) or "none"

    def _of(self, namespace: str) -> str:
        return os.readlink(self.place / "ns" / namespace)


def alive(engine: EngineProcess, state_dir: Path) -> Iterator[Process]:
    """Yield the processes that are there because of *engine*."""
    first = Process(engine.hello["pid"])
    found = {first.pid}
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()):
        try:
            process = Process(pid, first)
            groups = process.place.joinpath("cgroup").read_text()
        except OSError:
            continue
        named = str(state_dir) in process.command or engine.hello["engineId"] in groups
        if named or process.parent in found:
            found.add(pid)
            yield process


def kind(process: Process) -> str:
    """Return the name of its row; a process of no known kind has a name that no row has."""
    command = process.command
    for name, pattern in (
        ("engine", r"atoll\.cli\.main serve"),
        ("egress gateway", r"-m atoll\.network\.gateway"),
        ("frame around that client", r"bwrap .*s3fs"),
        ("client of a bucket", r"s3fs -f"),
        ("command", r"sleep 1000"),
        ("interpreter of a code context", r"python3 -c .*kernels"),
    ):
        if re.match(rf"(\S*/)?(python\S* .*)?{pattern}", command):
            return name
    if command.startswith("/dev/.atoll/lib/ld-"):
        waiting = process.status["Seccomp_filters"] == "2"
        return "child that becomes a command" if waiting else "agent, supervisors"
    return command


def rows(engine: EngineProcess, state_dir: Path) -> set[Seen]:
    seen = set()
    for process in alive(engine, state_dir):
        try:
            seen.add(process.row(kind(process)))
        except OSError:  # it ended
            continue
    return seen


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


def use_all(client: httpx2.Client, server: Server, planted: Planted) -> None:
    """Have a process of each kind."""
    secret = {"value": planted.new("secret of hosts"), "hosts": ["*.test"]}
    ask(client, "PUT", "/v2/namespaces/N/secrets/KEY", json=secret)
    bound = {"API_KEY": {"name": "KEY", "hosts": ["allowed.test"]}}
    ask(client, "PUT", BOX, json={"secrets": bound, "env": {"A": planted.new("variable")}})
    mount = {"bucket": BUCKET, "path": "/workspace/data", "endpoint": server.endpoint}
    ask(client, "POST", BOX + "/mounts", json=mount | {"credentials": server.credentials})
    ask(client, "POST", BOX + "/processes", json={"command": "sleep 1000"})
    ask(client, "POST", BOX + "/contexts", json={"language": "python"})


def test_each_process_is_as_documented(host: Host, server: Server) -> None:
    engine = host.start(ATOLL_STORAGE_BUCKET_ENDPOINTS=server.endpoint)
    planted = Planted(server)
    with engine.client() as client:
        use_all(client, server, planted)
        deadline = time.monotonic() + 30
        while (seen := rows(engine, host.state_dir)) != documented():
            assert time.monotonic() < deadline, (seen - documented(), documented() - seen)
            time.sleep(0.2)
        found = told_by_processes(planted)
        assert {what for told in found.values() for what in told} == {"variable"}
        assert {place.split()[0] for place in found} == {"environ"}
