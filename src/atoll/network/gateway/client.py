"""The engine's end of the protocol with the gateway."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from atoll.host import unix
from atoll.network.gateway import protocol
from atoll.network.gateway.protocol import (
    Call,
    Failed,
    GivenUp,
    HandlerAnswer,
    Noticed,
    Question,
    Reply,
    ToGateway,
    Unanswered,
)

ANSWER_TIMEOUT = 10.0
"""Seconds that the gateway has to answer: it decides nothing that takes longer than a moment."""

R = TypeVar("R", bound=Reply)

Handle = Callable[[Call], Awaitable[HandlerAnswer]]
Notice = Callable[[Noticed], None]


def unheard(noticed: Noticed) -> None:
    """Nobody is told."""


class GatewayGone(Exception):  # noqa: N818  # a state
    """The gateway does not answer; it is gone, or will be replaced."""


class GatewayClient:
    """A connection to a gateway.

    Args:
        reader: what it says.
        writer: what it is told.
        handle: has a Worker's handler called; its exceptions are told as reasons.
        notice: told of refusals.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        handle: Handle,
        notice: Notice = unheard,
    ) -> None:
        self._notice = notice
        self._reader = reader
        self._writer = writer
        self._handle = handle
        self._answers: dict[int, asyncio.Future[Reply]] = {}
        self._handling: dict[int, asyncio.Task[None]] = {}
        self._last = 0
        self._listening = asyncio.create_task(self._listen(), name="egress gateway")

    @classmethod
    async def connect(cls, path: Path, handle: Handle, notice: Notice = unheard) -> "GatewayClient":
        """Connect to the gateway whose control socket is *path*.

        Raises:
            OSError: nobody listens there.
        """
        reader, writer = await asyncio.open_unix_connection(sock=unix.connect(path))
        return cls(reader, writer, handle, notice)

    async def ask(self, question: Question, reply: type[R], timeout: float = ANSWER_TIMEOUT) -> R:
        """Return the answer to *question*, which has *timeout* seconds to come.

        Raises:
            GatewayGone: there is none.
            ValueError: the gateway refuses, with its reason; or it answers something else.
        """
        self._last += 1
        number = self._last
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            self._tell(ToGateway(number=number, message=question))
            async with asyncio.timeout(timeout):
                found = await answer
        except (OSError, TimeoutError) as error:
            raise GatewayGone("the egress gateway does not answer") from error
        finally:
            del self._answers[number]
        if isinstance(found, reply):
            return found
        told = found.message if isinstance(found, Failed) else type(found).__name__
        raise ValueError(f"the egress gateway answered: {told}")

    @property
    def ended(self) -> bool:
        """Whether the gateway has ended."""
        return self._listening.done()

    async def gone(self) -> None:
        """Return when the gateway has ended."""
        await asyncio.wait([self._listening])

    async def close(self) -> None:
        """End the connection; the gateway goes on."""
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)

    def _tell(self, message: ToGateway) -> None:
        if self._listening.done():
            raise ConnectionResetError
        self._writer.write(protocol.frame(message))

    async def _listen(self) -> None:
        try:
            while True:
                head = await self._reader.readexactly(protocol.LENGTH)
                data = await self._reader.readexactly(protocol.frame_length(head))
                self._hear(protocol.read_to_engine(data))
        except (OSError, EOFError, ValueError, msgspec.MsgspecError):
            pass
        finally:
            self._writer.close()
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(ConnectionResetError())
            for task in self._handling.values():
                task.cancel()

    def _hear(self, heard: protocol.ToEngine) -> None:
        message = heard.message
        if isinstance(message, Call):
            task = asyncio.create_task(self._answer(heard.number, message))
            self._handling[heard.number] = task
            task.add_done_callback(lambda _: self._handling.pop(heard.number, None))
        elif isinstance(message, Noticed):
            self._notice(message)
        elif isinstance(message, GivenUp):
            if given_up := self._handling.get(message.call):
                given_up.cancel()
        else:
            answer = self._answers.get(heard.number)
            if answer and not answer.done():
                answer.set_result(message)

    async def _answer(self, number: int, call: Call) -> None:
        try:
            answer = await self._handle(call)
            self._tell(ToGateway(number=number, message=answer))
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the sandbox is answered
            reason = Unanswered(reason=str(error)[:500] or type(error).__name__)
            if not self._listening.done():
                self._tell(ToGateway(number=number, message=reason))
