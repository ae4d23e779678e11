"""A runtime without isolation, for tests of the engine, server and SDK without root.

The agent runs as an ordinary process of the host in a directory of its own; commands do what they
like to the machine. It is used only when the settings name it as the default runtime: no caller
can ask for it, and nothing degrades to it.
"""

import asyncio
import json
import os
import secrets
import shutil
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

from atoll.errors import ContainerUnavailableError
from atoll.host import process, tcp, unix
from atoll.runtime.base import TOKEN_FILE, Container, ContainerSpec, Usage

# The shell leaves its pid and becomes the agent; `setsid -f` detaches it, so that it outlives the
# engine as a container would.
_LAUNCH = 'echo $$ >"$1/pid.new"; mv "$1/pid.new" "$1/pid"; exec "$2" -I -m atoll.agent </dev/null'


class FakeRuntime:
    """Implements `Runtime`.

    Args:
        base: the directory that holds one directory per host_ref.
        tcp: reach agents by TCP on loopback with a token, not by a unix socket.
    """

    name = "fake"
    own_ids = True
    unlimited = ("memory", "cpu", "disk", "pids")

    def __init__(self, base: Path, *, tcp: bool = False) -> None:
        self._base, self._tcp = base, tcp
        self.level = "fake-tcp" if tcp else "fake"
        self.by_namespace = self.takes_files = not tcp

    async def prepare(self, host_ref: str, id_base: int, id_count: int) -> None:
        """See `Runtime.prepare`; there is nothing to do."""

    async def start(self, spec: ContainerSpec) -> Container:
        """See `Runtime.start`."""
        workdir = spec.rootfs / "workspace"
        workdir.mkdir(exist_ok=True)
        config = {
            "generation": spec.generation,
            "listen": 3,
            "procs": [],
            "memory_events": None,
            "pids_events": None,
            "workdir": str(workdir),
            "user": f"{os.getuid()}:{os.getgid()}",
            "env": spec.env,
            "hostname": spec.hostname,
            "confine": False,
        }
        if self._tcp:
            config["token"] = _secret(spec.run_dir / TOKEN_FILE)
        (spec.run_dir / "config.json").write_text(json.dumps(config))
        with self._listen(spec.run_dir) as listener:
            await self._launch(spec.run_dir, listener)
        pid = await _appears(spec.run_dir / "pid")
        return Container(host_ref=spec.host_ref, pid=pid)

    def _listen(self, run_dir: Path) -> socket.socket:
        if not self._tcp:
            return unix.listen(run_dir / "agent.sock")
        listener = socket.create_server(("127.0.0.1", 0), backlog=unix.BACKLOG)
        (run_dir / "port").write_text(str(listener.getsockname()[1]))
        return listener

    async def _launch(self, run_dir: Path, listener: socket.socket) -> None:
        argv: list[str | Path] = [
            "/usr/bin/setsid",
            "-f",
            "bash",
            "-c",
            _LAUNCH,
            "agent",
            run_dir,
            sys.executable,
        ]
        with (run_dir / "config.json").open() as config, (run_dir / "agent.log").open("w") as log:
            code = await process.run_handing_over(
                argv, [listener.fileno(), config.fileno()], output=log.fileno(), timeout=10
            )
        if code:
            raise ContainerUnavailableError(
                f"setsid failed with {code}", context={"reason": "runtime"}
            )

    async def dial(self, run_dir: Path, host_ref: str) -> socket.socket:
        """See `Runtime.dial`."""
        if not await self.find(host_ref):
            raise ConnectionRefusedError(f"{host_ref} does not run")
        if self._tcp:
            return await tcp.connect("127.0.0.1", int((run_dir / "port").read_text()))
        return unix.connect(run_dir / "agent.sock")

    async def find(self, host_ref: str) -> Container | None:
        """See `Runtime.find`."""
        pid = self._pid(host_ref)
        return Container(host_ref=host_ref, pid=pid) if pid and _is_agent(pid) else None

    def _pid(self, host_ref: str) -> int | None:
        text = _text(self._base / host_ref / "container" / "pid")
        return int(text) if text else None

    async def list(self) -> list[str]:
        """See `Runtime.list`."""
        return [path.parent.name for path in self._base.glob("*/container")]

    async def remove(self, host_ref: str) -> None:
        """See `Runtime.remove`."""
        pid = self._pid(host_ref)
        if pid and _is_agent(pid):
            await _kill_tree(pid)
        shutil.rmtree(self._base / host_ref / "container", ignore_errors=True)

    async def pause(self, host_ref: str) -> None:
        """See `Runtime.pause`."""
        self._signal_tree(host_ref, signal.SIGSTOP)

    async def resume(self, host_ref: str) -> None:
        """See `Runtime.resume`."""
        self._signal_tree(host_ref, signal.SIGCONT)

    def _signal_tree(self, host_ref: str, number: int) -> None:
        if pid := self._pid(host_ref):
            for member in _tree(pid):
                _kill(member, number)

    async def rename(self, host_ref: str, hostname: str) -> None:
        """See `Runtime.rename`; the host keeps its own name."""

    async def usage(self, host_ref: str) -> Usage:
        """See `Runtime.usage`; only the number of processes is known."""
        pid = self._pid(host_ref)
        return Usage(memory=0, cpu_time=0.0, pids=len(_tree(pid)) if pid else 0, oom_kills=0)


def _secret(path: Path) -> str:
    token = secrets.token_urlsafe(32)
    path.touch(mode=0o600)
    path.write_text(token)
    return token


async def _appears(path: Path) -> int:
    for _ in range(500):
        if text := _text(path):
            return int(text)
        await asyncio.sleep(0.01)
    raise ContainerUnavailableError("the agent did not start", context={"reason": "runtime"})


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def _is_agent(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if command:
            return b"atoll.agent" in command
        # Empty in a zombie, but also for a moment while the shell becomes the agent.
        return _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()[:1] not in ([], ["Z"])
    except (FileNotFoundError, ProcessLookupError):
        return False


def _tree(root: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = [root]
    for pid in found:
        found.extend(child for child, parent in parents.items() if parent == pid)
    return found


async def _kill_tree(root: int) -> None:
    # Stopped first, so that nothing forks away between the listing and the kill.
    for _ in range(10):
        members = _tree(root)
        for pid in members:
            _kill(pid, signal.SIGSTOP)
        if _tree(root) == members:
            break
    for pid in reversed(members):
        _kill(pid, signal.SIGKILL)
    for _ in range(1_000):
        if not _is_agent(root):
            break
        await asyncio.sleep(0.005)


def _kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
