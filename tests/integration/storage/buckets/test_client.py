import json
import os
import subprocess
import sys
import time
from pathlib import Path

from atoll.host import lasting
from atoll.storage.buckets import client


def recorded(folder: Path, pid: int, started: str | None) -> None:
    folder.mkdir(parents=True)
    (folder / "process").write_text(json.dumps({"pid": pid, "started": started}))


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True
    )


async def test_a_client_is_found_again_and_ended(tmp_path: Path) -> None:
    process = sleeper()
    recorded(tmp_path / "all/one", process.pid, lasting.identified(process.pid).started)
    assert client.alive(tmp_path / "all/one")
    await client.stop(tmp_path / "all/one", 0)
    assert not (tmp_path / "all/one").exists()
    process.communicate()
    await client.stop_all(tmp_path / "all")
    await client.stop_all(tmp_path / "all")
    assert os.listdir(tmp_path) == []


def test_clients_that_hold_somebody_up_are_killed_at_once(tmp_path: Path) -> None:
    processes = [sleeper(), sleeper()]
    for number, process in enumerate(processes):
        recorded(tmp_path / f"all/{number}", process.pid, lasting.identified(process.pid).started)
    client.kill_all(tmp_path / "all")
    for process in processes:
        process.communicate(timeout=20)
    assert not any(client.alive(tmp_path / f"all/{number}") for number in range(2))
    client.kill_all(tmp_path / "none")


async def test_another_process_of_the_same_number_is_left_alone(tmp_path: Path) -> None:
    process = sleeper()
    recorded(tmp_path / "one", process.pid, "1")
    assert not client.alive(tmp_path / "one")
    await client.stop(tmp_path / "one", 0)
    assert process.poll() is None
    process.communicate(b"\n", 20)


async def test_one_that_ends_by_itself_is_not_killed(tmp_path: Path) -> None:
    process = sleeper()
    recorded(tmp_path / "one", process.pid, lasting.identified(process.pid).started)
    process.communicate(b"\n", 20)
    began = time.monotonic()
    await client.stop(tmp_path / "one")
    assert time.monotonic() - began < 5
    assert process.returncode == 0


def test_the_last_complaint_is_the_reason(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("2026 [INF] s3fs version\n2026 [CRT] s3fs.cpp:x: no bucket\n")
    assert client.failure(tmp_path, "why").message.endswith("s3fs.cpp:x: no bucket")
    assert client.failure(tmp_path / "none", "why").message.endswith("why")


def test_complaints_without_end_do_not_fill_the_disk(tmp_path: Path) -> None:
    with (tmp_path / "log").open("ab") as log:
        log.write(b"x" * client.MAX_LOG)
        log.flush()
        client.trim_log(tmp_path)
        assert (tmp_path / "log").stat().st_size == client.MAX_LOG
        log.write(b"more")
        log.flush()
        client.trim_log(tmp_path)
        log.write(b"last")
    assert (tmp_path / "log").read_bytes() == b"last"
    client.trim_log(tmp_path / "none")
