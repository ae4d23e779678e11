"""Waiting for what the kernel tells by a descriptor."""

import asyncio
import os


async def readable(fd: int) -> None:
    """Wait until *fd* can be read; a pidfd can once its process has ended."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)


async def ended(pid: int) -> None:
    """Wait until the process *pid* has ended, whoever's child it is; one that is not there has.

    Raises:
        OSError: this process has no descriptor left.
    """
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await readable(process)
    finally:
        os.close(process)
