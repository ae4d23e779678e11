"""The client of a bucket: s3fs or rclone, started confined, found again, ended.

Credentials are a file that only it can read, and that is removed once it has read it. It outlives
the engine; what another engine needs to find it is in its folder. Measured: 0.1 s until it answers.
"""

import asyncio
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from atoll.errors import BucketMountError
from atoll.host import lasting, process, trees
from atoll.host.lasting import Running
from atoll.storage.buckets import confinement, rclone, s3fs, tools
from atoll.storage.buckets.confinement import Place
from atoll.storage.buckets.options import Credentials, Source

MAX_LOG = 1 << 20
"""Bytes of complaints that are kept of a client: code inside can have it complain without end."""

GRACE = 10.0
"""Seconds a client has to send what it holds, after its mount is gone."""


def start(
    tool: str, source: Source, credentials: Credentials | None, place: Place, device: int
) -> None:
    """Start the client *tool* that answers on *device*. Blocking; returns before it answers.

    Raises:
        RuntimeNotAvailableError: a program is missing.
        NotSupportedByRuntimeError: the client that is there lacks an option.
        InvalidMountConfigError: it cannot be given this key.
    """
    command, secret = told(tool, source, credentials, place)
    confinement.prepare(place, secret)
    folder = place.folder
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
    log = os.open(folder / "log", flags, 0o600)
    try:
        # Twice: the first number is what rclone's own helper has its socket at.
        pid = process.launch(confinement.argv(place, command), [device, device], output=log)
    finally:
        os.close(log)
    (folder / "process").write_bytes(msgspec.json.encode(lasting.identified(pid)))


def told(
    tool: str, source: Source, credentials: Credentials | None, place: Place
) -> tuple[list[str], str]:
    """Return the command line of a bucket's client, and its secret file; raise as `start`."""
    if tool == tools.RCLONE:
        secret = rclone.config(source, credentials, datetime.now(UTC))
        return rclone.argv(source, place.owner), secret
    return s3fs.argv(source, place.owner, place.reserve_mb), s3fs.secret(credentials)


def forget_secret(folder: Path) -> None:
    """Remove the credentials: a client that answers has read them."""
    (folder / "secret").unlink(missing_ok=True)


def said(folder: Path) -> str:
    """Return the last complaint of a client, for an error message."""
    with suppress(OSError):
        lines = (folder / "log").read_text(errors="replace")[-4_096:].strip().splitlines()
        told = [line.partition("] ")[2] or line for line in lines if "[INF]" not in line]
        return " ".join(told[-3:])
    return ""


def trim_log(folder: Path) -> None:
    """Forget complaints of a client that are too many; it goes on writing at the beginning."""
    with suppress(OSError):
        if (folder / "log").stat().st_size > MAX_LOG:
            os.truncate(folder / "log", 0)


def failure(folder: Path, why: str) -> BucketMountError:
    """Return the error of a client that does not serve its bucket."""
    message = said(folder)
    return BucketMountError(
        f"the bucket's client does not answer: {message or why}",
        context={"path": str(folder.name)},
    )


def alive(folder: Path) -> bool:
    """Whether the client of this folder runs."""
    found = _recorded(folder)
    return found is not None and lasting.alive(found)


async def stop(folder: Path, grace: float = GRACE) -> None:
    """End a client whose mount is gone, and forget its folder. Idempotent.

    It ends by itself, after it has sent what it holds; after *grace* seconds it is killed.
    """
    end = asyncio.get_running_loop().time() + grace
    while (found := _recorded(folder)) and alive(folder):
        lasting.reap(found)
        if asyncio.get_running_loop().time() > end:
            lasting.kill(found)
        await asyncio.sleep(0.02)
    if found:
        lasting.reap(found)
    with suppress(OSError):  # its cache has the folders that the sandbox made, as deep as it liked
        await asyncio.to_thread(trees.remove, folder)


async def stop_all(folder: Path) -> list[str]:
    """End all clients of a start whose mounts went with it; return their names. Idempotent."""
    names = _names(folder)
    await asyncio.gather(*(stop(folder / name) for name in names))
    with suppress(FileNotFoundError):
        os.rmdir(folder)  # noqa: PTH106
    return names


def kill_all(folder: Path) -> None:
    """Kill all clients of a start: whoever waits for an answer of one has an error. Idempotent."""
    for name in _names(folder):
        if found := _recorded(folder / name):
            lasting.kill(found)


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


def _recorded(folder: Path) -> Running | None:
    try:
        return msgspec.json.decode((folder / "process").read_bytes(), type=Running)
    except (OSError, msgspec.MsgspecError):
        return None
