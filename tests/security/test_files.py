"""Probes 18 and 23 against the file API, in a real container."""

import ast
import asyncio
import io
import itertools
import json
import tarfile
from contextlib import suppress
from typing import Any

import pytest

from atoll import errors
from atoll.wire.frames import Kind
from e2e.runtime.boxes import Bench, Box, weakened
from integration.agent.client import eventually
from security.test_container import run

pytestmark = pytest.mark.e2e


def send(box: Box, op: str, body: bytes, **fields: Any) -> Any:
    with box.connect() as connection:
        connection.header(op=f"fs.{op}", **fields)
        connection.send(Kind.DATA, body)
        connection.send(Kind.END)
        return json.loads(connection.until(Kind.REPLY).payload)


def read(box: Box, path: str, **fields: Any) -> bytes:
    data = b""
    with box.connect() as connection:
        connection.header(op="fs.read_file", path=path, **fields)
        connection.until(Kind.REPLY)
        for frame in connection:
            if frame.kind == Kind.ERROR:
                raise errors.from_wire(json.loads(frame.payload))
            data += frame.payload if frame.kind == Kind.DATA else b""
    return data


PRIVATE = ["mem", "environ", "maps", "auxv", "fd/3", "fd/4", "fd/5", "root/etc/passwd", "cwd/x",
           "map_files", "stack", "syscall", "task/1/mem"]  # fmt: skip


@pytest.mark.parametrize("user", ["0:0", "1000:1000"])
@pytest.mark.parametrize("through", ["/proc/1", "/workspace/link"])
async def test_18_nothing_of_pid_1_is_read_or_written(
    bench: Bench, user: str, through: str
) -> None:
    """A file operation of root inside must hold no more than a command of root inside."""
    async with bench.running() as box:
        box.sh("ln -s /proc/1 /workspace/link; chmod 777 /workspace")
        for name in PRIVATE:
            path = f"{through}/{name}"
            with pytest.raises(errors.SandboxError):
                read(box, path, user=user, offset=4096, length=16)
            with pytest.raises(errors.SandboxError):
                send(box, "write_file", b"x", path=path, user=user)
            with pytest.raises(errors.SandboxError):
                send(box, "write_file", b"x", path=path, user=user, append=True)
        for op in ("list_files", "download", "search_files", "check_changes"):
            with pytest.raises(errors.SandboxError):
                box.call(f"fs.{op}", path=f"{through}/root/", user=user, pattern="*")
        assert box.call("hello")["pid"] == 1


async def test_18_a_file_operation_has_the_capabilities_and_the_filter_of_a_command(
    bench: Bench,
) -> None:
    names = ("CapInh", "CapPrm", "CapEff", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters")
    async with bench.running() as box:
        for user in ("0:0", "1000:1000"):
            own = read(box, "/proc/self/status", user=user).decode()
            command = box.exec(["cat", "/proc/self/status"], user=user).stdout.decode()
            for name in names:
                assert _field(own, name) == _field(command, name), name


def _field(status: str, name: str) -> str:
    return next(line for line in status.splitlines() if line.startswith(f"{name}:"))


_TRACE = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def attempts(pid):
    for name in ("mem", "environ", "maps", "fd/0"):
        try:
            with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
                if name in ("mem", "fd/0") or file.read(1):
                    yield f"open {name} of {pid}"
        except OSError:
            pass
    try:
        yield f"follow a descriptor of {pid} to " + os.readlink(f"/proc/{pid}/fd/1")
    except OSError:
        pass
    if libc.ptrace(0x4206, pid, 0, 0) == 0:
        yield f"seize {pid}"
def parent(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1]
    except OSError:
        return ""
ours = [int(p) for p in os.listdir("/proc") if p.isdecimal() and parent(p) == "1"]
print({"ours": ours, "found": [found for pid in ours for found in attempts(pid)]})
"""


async def test_18_root_inside_cannot_trace_a_file_operation(bench: Bench) -> None:
    """It holds a connection to the engine."""
    async with bench.running() as box:
        box.sh("mkdir /workspace/w")
        with box.connect() as watch:
            watch.header(op="fs.watch", path="/workspace/w")
            watch.until(Kind.EVENT)
            during = ast.literal_eval(box.python(_TRACE))
        assert during["found"] == []

        def ended() -> bool:
            return bool(set(during["ours"]) - set(ast.literal_eval(box.python(_TRACE))["ours"]))

        eventually(ended)  # so it was one of those that were tried


async def test_18_a_file_operation_that_is_not_guarded_is_traced(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weakened run: with the agent's privileges left to commands the probe finds something."""
    async with weakened(monkeypatch, lambda _: None, confine=False), bench.running() as box:
        box.sh("mkdir /workspace/w")
        with box.connect() as watch:
            watch.header(op="fs.watch", path="/workspace/w")
            watch.until(Kind.EVENT)
            assert "open mem" in box.python(_TRACE)


async def test_18_links_are_resolved_inside(bench: Bench) -> None:
    """Absolute, relative and dangling links end at the sandbox's own root."""
    outside = bench.home / "outside"
    outside.mkdir(mode=0o777)
    async with bench.running() as box:
        host = str(outside)
        box.sh(f"ln -s {host}/f /workspace/a; ln -s ../../../../../..{host}/f /workspace/b")
        for link in ("a", "b"):
            send(box, "write_file", link.encode(), path=f"/workspace/{link}")
            assert read(box, f"{host}/f") == link.encode()
        assert list(outside.iterdir()) == []


async def test_18_a_parent_that_is_swapped_meanwhile_leads_nowhere_else(bench: Bench) -> None:
    swap = """
    cd /workspace; mkdir -p real other; ln -s /etc evil
    while [ ! -e stop ]; do
      mv real p 2>/dev/null; mv p real 2>/dev/null; ln -sfn /etc p 2>/dev/null; rm -f p
    done"""
    async with bench.running() as box:
        with box.start(["/bin/sh", "-c", swap], user="1000:1000"):
            box.sh("chmod 777 /workspace")
            before = box.sh("ls /etc")
            for _ in range(60):
                with suppress(errors.SandboxError):
                    await asyncio.to_thread(
                        send, box, "write_file", b"x", path="/workspace/p/f", user="1000:1000"
                    )
            assert box.sh("ls /etc") == before
            box.sh("touch /workspace/stop")


HOSTILE = ["x;touch /tmp/p", "$(touch /tmp/p)", "`touch /tmp/p`", "--upload-pack=touch /tmp/p",
           "-rf", "--help", "a\ntouch /tmp/p\n", "a\0b", "|touch /tmp/p", "'\";touch /tmp/p;\"'",
           "../../../../tmp/../tmp/q", "%2e%2e/x", "\udcff", "\ud800", "*", "~", "a" * 5000]  # fmt: skip

STRINGS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("read_file", {}, ["path", "user", "session"]),
    ("delete_file", {"recursive": True}, ["path"]),
    ("mkdir", {"recursive": True}, ["path"]),
    ("rename_file", {"source": "d/f", "target": "d/g"}, ["source", "target"]),
    ("move_file", {"source": "d/f", "target": "d/g"}, ["source", "target"]),
    ("copy_file", {"source": "d/f", "target": "d/g"}, ["source", "target"]),
    ("exists", {}, ["path"]),
    ("stat", {}, ["path"]),
    ("set_permissions", {"path": "d/f"}, ["path", "owner", "group"]),
    ("list_files", {"path": "d"}, ["path", "cursor"]),
    ("search_files", {"path": "d", "pattern": "*"}, ["path", "pattern"]),
    ("find_in_files", {"path": "d", "text": "x"}, ["path", "text", "glob"]),
    ("replace_in_files", {"paths": ["d/f"], "old": "x", "new": "y"}, ["old", "new"]),
    ("download", {"path": "d"}, ["path", "excludes"]),
    ("check_changes", {"path": "d"}, ["path", "since"]),
]


@pytest.mark.parametrize(("op", "fields", "names"), STRINGS, ids=[op for op, _, _ in STRINGS])
async def test_23_no_text_of_a_request_is_run(
    bench: Bench, op: str, fields: dict[str, Any], names: list[str]
) -> None:
    async with bench.running() as box:
        for name, value in itertools.product(names, HOSTILE):
            box.sh("mkdir -p /workspace/d; echo x > /workspace/d/f")
            with suppress(errors.SandboxError, EOFError), box.connect() as connection:
                wanted = {"cwd": "/workspace", **fields, name: value}
                connection.header(op=f"fs.{op}", **wanted)
                connection.until(Kind.REPLY)
        assert box.sh("ls -d /tmp/p /bin/sh 2>/dev/null") == "/bin/sh\n"
        assert box.call("hello")["pid"] == 1


async def test_23_bodies_and_lists_are_data_too(bench: Bench) -> None:
    async with bench.running() as box:
        for value in HOSTILE:
            with suppress(errors.SandboxError):
                send(box, "write_file", b"x", path=value, cwd="/workspace/in")
            with suppress(errors.SandboxError):
                send(box, "upload", _archive(value), path="/workspace/up", cwd="/workspace")
            with suppress(errors.SandboxError):
                box.call("fs.replace_in_files", paths=[value], old="x", new="y", cwd="/workspace")
            for glob in ("include", "exclude"):
                with suppress(errors.SandboxError):
                    box.call("fs.check_changes", path="/workspace", **{glob: [value]})
        assert box.sh("ls -d /tmp/p /bin/sh 2>/dev/null") == "/bin/sh\n"


def _archive(name: str) -> bytes:
    buffer = io.BytesIO()
    with (
        suppress(UnicodeEncodeError, ValueError),
        tarfile.open(fileobj=buffer, mode="w") as archive,
    ):
        archive.addfile(tarfile.TarInfo(name))
    return buffer.getvalue()


async def test_5_members_of_an_archive_stay_in_the_target(bench: Bench) -> None:
    async with bench.running() as box:
        before = box.sh("ls -A /tmp /etc /")
        for name, kind, link in (
            ("../../etc/evil", tarfile.REGTYPE, ""),
            ("/etc/evil", tarfile.REGTYPE, ""),
            ("dev", tarfile.CHRTYPE, ""),
            ("fifo", tarfile.FIFOTYPE, ""),
            ("hard", tarfile.LNKTYPE, "/etc/passwd"),
            ("hard", tarfile.LNKTYPE, "../../etc/passwd"),
            ("soft", tarfile.SYMTYPE, "/etc"),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, link
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w") as archive:
                archive.addfile(info)
            with pytest.raises(errors.SecurityError):
                send(box, "upload", buffer.getvalue(), path="/workspace/up")
        assert box.sh("ls -A /tmp /etc /") == before
        assert box.sh("ls -A /workspace") == ""


async def test_4_a_target_that_became_a_link_is_refused(bench: Bench) -> None:
    async with bench.running() as box:
        box.sh("ln -s / /workspace/up")
        with pytest.raises(errors.SecurityError):
            send(box, "upload", _archive("evil"), path="/workspace/up")
        assert "evil" not in box.sh("ls /")


async def test_the_probes_hold_while_a_file_operation_waits(bench: Bench) -> None:
    async with bench.running() as box:
        with box.connect() as watch:
            watch.header(op="fs.watch", path="/tmp")
            watch.until(Kind.EVENT)
            for name in ("agent_is_untouchable", "secrets", "descriptors"):
                assert run(box, name) == []
