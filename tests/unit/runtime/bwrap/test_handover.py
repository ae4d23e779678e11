import json
import os
import socket
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from atoll.errors import InvalidMountConfigError, SecurityError
from atoll.runtime.bwrap import command, handover
from unit.runtime.bwrap.test_groups import spec


def group(tmp_path: Path, controllers: str) -> str:
    found = tmp_path / "sandboxes/box"
    (found / "user").mkdir(parents=True)
    (found / "user/cgroup.controllers").write_text(controllers)
    return str(found)


def test_without_a_group_processes_are_limited_one_by_one(tmp_path: Path) -> None:
    told = json.loads(handover.agent_config(spec("box"), ""))
    assert (told["procs"], told["memory_events"], told["pids_events"]) == ([], command.EVENTS, None)
    assert told["limits"] == {"NPROC": 50, "DATA": 1 << 30}
    box = msgspec.structs.replace(spec("box"), run_dir=tmp_path)
    assert list(handover.counters(box, "")) == [(tmp_path / "memory.events", os.O_RDONLY)]


def test_what_the_kernel_holds_together_no_process_is_limited_in(tmp_path: Path) -> None:
    place = group(tmp_path, "memory pids cpu")
    told = json.loads(handover.agent_config(spec("box"), place))
    assert (told["procs"], told["pids_events"]) == ([command.PROCS], command.REFUSED)
    assert told["limits"] == {}
    user = Path(place, "user")
    assert list(handover.counters(spec("box"), place)) == [
        (user / "memory.events", os.O_RDONLY),
        (user / "cgroup.procs", os.O_WRONLY),
        (user / "pids.events", os.O_RDONLY),
    ]


def test_a_group_without_controllers_holds_commands_and_limits_nothing(tmp_path: Path) -> None:
    place = group(tmp_path, "hugetlb")
    told = json.loads(handover.agent_config(spec("box"), place))
    assert (told["procs"], told["pids_events"]) == ([command.PROCS], None)
    assert told["limits"]["NPROC"] == 50
    assert [path.name for path, _ in handover.counters(spec("box"), place)] == [
        "memory.events",
        "cgroup.procs",
    ]


def test_news_of_a_start_are_its_process_or_why_there_is_none() -> None:
    assert handover.first_process({"child-pid": 7}) == 7
    with pytest.raises(SecurityError):
        handover.first_process({"refused": "/v", "what": "link"})
    with pytest.raises(InvalidMountConfigError):
        handover.first_process({"refused": "/v", "what": "file"})


async def test_a_configuration_is_told_or_known_to_be_unread() -> None:
    with handover.pair() as (ours, theirs):
        assert theirs.getblocking()
        theirs.close()
        assert not await handover.tell(ours, b"{}")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        theirs.shutdown(socket.SHUT_WR)
        assert await handover.tell(ours, b"{}")
        assert theirs.recv(10) == b"{}"


def test_descriptors_go_with_who_opened_them(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    with ExitStack() as opened:
        found = handover.opened_as(tmp_path / "f", os.O_RDONLY, opened)
        memory = handover.in_memory("plan", b"told", opened)
        assert (os.read(found, 2), os.pread(memory, 9, 0)) == (b"x", b"told")
    for fd in (found, memory):
        with pytest.raises(OSError):
            os.fstat(fd)
