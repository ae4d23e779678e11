"""The gateway's end of its protocol with the engine."""

import asyncio
import os
import socket
from contextlib import suppress

import msgspec

from atoll.network.gateway import protocol
from atoll.network.gateway.protocol import (
    Call,
    Configure,
    Done,
    Failed,
    GivenUp,
    HandlerAnswer,
    List,
    Listed,
    Noticed,
    Pins,
    Put,
    Question,
    Remove,
    Reply,
    Status,
    Stop,
    Take,
    ToEngine,
    Unanswered,
)
from atoll.network.gateway.service import Service

HANDLER_TIMEOUT = 3_660.0
"""Seconds that the engine has for an answer. It gives a handler less (`network.handler_timeout`)."""

MAX_UNREAD = protocol.MAX_FRAME + (1 << 20)
"""Bytes that the engine may leave unread, a call among them, before it hears of no more refusals."""

_GONE = "the engine is gone"


class Control:
    """Serves the engine that is connected."""

    def __init__(self) -> None:
        self.stopped = asyncio.Event()
        self._service: Service | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._calls: dict[int, asyncio.Future[HandlerAnswer]] = {}
        self._last = 0
        self._asking = asyncio.Lock()

    async def serve(self, service: Service, listener: socket.socket) -> asyncio.Server:
        """Take engines in from now on; return what ends that."""
        self._service = service
        return await asyncio.start_unix_server(self._engine, sock=listener)

    async def call(self, call: Call) -> HandlerAnswer:
        """Have a handler called."""
        if self._writer is None:
            return Unanswered(reason="the engine is not there")
        self._last += 1
        number = self._last
        answer: asyncio.Future[HandlerAnswer] = asyncio.get_running_loop().create_future()
        self._calls[number] = answer
        try:
            async with asyncio.timeout(HANDLER_TIMEOUT):
                async with self._asking:
                    await self._ask(number, call)
                return await answer
        except TimeoutError:
            self._give_up(number)
            return Unanswered(reason="it took too long")
        except OSError:
            return Unanswered(reason=_GONE)
        except ValueError:
            return Unanswered(reason="the request is too large")
        except asyncio.CancelledError:
            self._give_up(number)
            raise
        finally:
            del self._calls[number]

    async def _ask(self, number: int, call: Call) -> None:
        """Send a call, one at a time: what its engine has not read is held by nobody's budget."""
        if self._writer and not self._calls[number].done():
            self._writer.write(protocol.frame(ToEngine(number=number, message=call)))
            await self._writer.drain()

    def notice(self, noticed: Noticed) -> None:
        """Tell the engine, if there is one that reads."""
        if self._writer and self._writer.transport.get_write_buffer_size() < MAX_UNREAD:
            self._writer.write(protocol.frame(ToEngine(number=0, message=noticed)))

    def _give_up(self, number: int) -> None:
        if self._writer:
            told = ToEngine(number=number, message=GivenUp(call=number))
            self._writer.write(protocol.frame(told))

    async def _engine(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._writer:
            self._lose(self._writer)
        self._writer = writer
        try:
            while True:
                head = await reader.readexactly(protocol.LENGTH)
                data = await reader.readexactly(protocol.frame_length(head))
                await self._hear(protocol.read_to_gateway(data), writer)
        except (OSError, EOFError, ValueError, msgspec.MsgspecError):
            pass
        finally:
            self._lose(writer)

    def _lose(self, writer: asyncio.StreamWriter) -> None:
        """Go on without this engine: what it was asked for has no answer."""
        writer.close()
        if self._writer is writer:
            self._writer = None
            for answer in self._calls.values():
                if not answer.done():
                    answer.set_result(Unanswered(reason=_GONE))

    async def _hear(self, heard: protocol.ToGateway, writer: asyncio.StreamWriter) -> None:
        message = heard.message
        if isinstance(message, protocol.Answered | protocol.Forward | Unanswered):
            answer = self._calls.get(heard.number)
            if answer and not answer.done():
                answer.set_result(message)
            return
        reply = self._reply(message)
        with suppress(OSError):
            writer.write(protocol.frame(ToEngine(number=heard.number, message=reply)))
            await writer.drain()

    def _reply(self, question: Question) -> Reply:
        service = self._service
        if service is None:
            return Failed(message="not ready")
        match question:
            case Configure():
                service.configure(question.nameservers)
            case Put():
                try:
                    service.put(question)
                except ValueError as error:
                    return Failed(message=str(error))
            case Take():
                try:
                    service.take(question.host_ref)
                except ValueError as error:
                    return Failed(message=str(error))
            case Remove():
                service.remove(question.host_ref)
            case List():
                return Listed(versions=service.versions())
            case Status():
                return service.status(os.getpid())
            case Pins():
                return service.pins(question.host_ref)
            case Stop():
                self.stopped.set()
        return Done()
