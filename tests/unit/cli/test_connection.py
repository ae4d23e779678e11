"""Verbs end with their own result, error, or the signal that interrupted them."""

import asyncio
import os
import signal

import pytest

import atoll
from atoll.cli import connection
from atoll.errors import NoSpaceError


def test_a_result_and_an_error_are_passed_on() -> None:
    async def work() -> int:
        return 7

    async def failing() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_raise(NoSpaceError("full")))

    assert connection.run(work()) == 7
    with pytest.raises(NoSpaceError):
        connection.run(failing())


async def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_verb_clean_up_and_becomes_the_exit_code(number: int) -> None:
    cleaned = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.sleep(5)
        finally:
            cleaned.append(True)

    with pytest.raises(SystemExit) as caught:
        connection.run(work())
    assert (caught.value.code, cleaned) == (128 + number, [True])


def test_a_reader_that_is_gone_ends_the_verb_as_a_pipe_does() -> None:
    with pytest.raises(SystemExit) as caught:
        connection.run(_raise(BrokenPipeError()))
    assert caught.value.code == 128 + signal.SIGPIPE


def test_an_address_means_that_engine_and_none_the_private_one() -> None:
    there = connection.environment("http://host:1")
    assert isinstance(there, atoll.Environment)
    assert there.transport.endpoint.shown == "http://host:1"
    assert type(connection.environment(None).transport).__name__ == "LocalTransport"
