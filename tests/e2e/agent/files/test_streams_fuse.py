"""A mount inside a sandbox whose server never answers, as one of a bucket that went away."""

import asyncio
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from atoll.agent.files import streams
from atoll.engine.link.link import Link, SilenceError
from atoll.wire.frames import Kind
from e2e.agent.files.silent_mount import silent_mount
from e2e.runtime.boxes import Bench, Box
from e2e.runtime.roots import ID_BASE
from integration.agent.files_calls import Call

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(os.getuid() != 0, reason="mounts")]

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("read_file", {"path": "stuck/f"}),
    ("write_file", {"path": "stuck/f"}),
    ("write_file", {"path": "stuck/new/f"}),
    ("upload", {"path": "stuck/d"}),
    ("download", {"path": "stuck"}),
    ("list_files", {"path": "stuck"}),
    ("list_files", {"path": ".", "recursive": True}),
    ("stat", {"path": "stuck/f"}),
    ("exists", {"path": "stuck/f"}),
    ("mkdir", {"path": "stuck/d"}),
    ("delete_file", {"path": "stuck/f"}),
    ("move_file", {"source": "here", "target": "stuck/f"}),
    ("copy_file", {"source": "stuck/f", "target": "there"}),
    ("find_in_files", {"path": "stuck", "text": "x"}),
    ("check_changes", {"path": "."}),
]


async def _asked(box: Box, op: str, fields: dict[str, Any]) -> None:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(box.path)
    sock.setblocking(False)
    header = {"op": f"fs.{op}", "cwd": "/workspace", **fields}
    async with await Link.open(sock, header) as link:
        if op in {"write_file", "upload"}:
            await link.send(Kind.END, b"{}")
        with pytest.raises(SilenceError):
            await link.reply(timeout=None, silence=1.0)


async def test_calls_on_it_are_given_up_and_others_are_not_held_up(bench: Bench) -> None:
    spec = bench.spec()
    stuck = spec.rootfs / "workspace/stuck"
    stuck.mkdir()
    os.chown(stuck, ID_BASE, ID_BASE)
    with silent_mount(stuck):
        box = Box(bench.runtime, spec, await bench.runtime.start(spec))
        box.sh("echo x > /workspace/here")
        asked = asyncio.gather(*(_asked(box, op, fields) for op, fields in CALLS))
        longest = 0.0
        while not asked.done():
            start = time.monotonic()
            found = await asyncio.to_thread(box.call, "fs.stat", path="/workspace/here")
            assert found["size"] == 2
            longest = max(longest, time.monotonic() - start)
        await asked
        assert longest < 5
        assert box.exec(["echo", "ok"]).stdout == b"ok\n"
    await bench.runtime.remove(spec.host_ref)


def test_an_operation_that_is_stuck_ends_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it any more, and there is room for a limited number of them."""
    monkeypatch.setattr(streams, "STUCK", 1)
    (tmp_path / "stuck").mkdir()
    with silent_mount(tmp_path / "stuck"):
        running = Call("stat", path=str(tmp_path / "stuck/f"))
        _, status = os.waitpid(running.pid, 0)
        running.socket.close()
    assert os.WTERMSIG(status) == signal.SIGALRM
