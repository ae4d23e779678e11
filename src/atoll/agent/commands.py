"""Operations of the router that concern commands: exec, attach, control, operations, shutdown."""

import os
import socket
import time
from collections.abc import Iterator
from typing import Any

from atoll import errors
from atoll.agent import answer, journal
from atoll.agent.channel import Message
from atoll.agent.config import Config
from atoll.agent.descriptors import read_all
from atoll.agent.loop import Loop
from atoll.agent.operations import MAX_RUNNING, Operation, Operations, check_id
from atoll.agent.workers import Worker, Workers
from atoll.wire import frames
from atoll.wire.frames import Kind


class Commands:
    """Hands commands to supervisors and keeps their outcomes."""

    def __init__(self, loop: Loop, config: Config) -> None:
        self._loop, self._config = loop, config
        self._operations = Operations(os.close)
        self._workers = Workers(loop, config, on_report=self._on_report, on_left=self._on_left)
        self._workers.prepare()

    def exec(self, sock: socket.socket, header: dict[str, Any], fds: list[int]) -> None:
        """Run a command, or attach to it if its id is known."""
        id = check_id(header.get("id"))
        fingerprint = hash(repr(header.get("command")))
        if known := self._operations.get(id):
            if known.fingerprint != fingerprint:
                raise errors.IdempotencyConflictError(
                    "the operation id belongs to another command", context={"id": id}
                )
            self._attach(known, sock, header)
            return
        if len(self._workers) >= MAX_RUNNING:
            raise errors.ResourceBusyError(
                f"{MAX_RUNNING} commands run or have left background processes",
                context={"limit": MAX_RUNNING},
                suggestion="wait for some to end, or kill background processes",
            )
        operation = Operation(id, header.get("session"), fingerprint, time.time())
        operation.detach = bool(header.get("detach"))
        self._operations.add(operation)
        worker = self._workers.take(operation)
        context = {"env": self._config.env, "cwd": self._config.workdir, "user": self._config.user}
        worker.tell({"do": "run", "header": header, "context": context}, [sock.fileno(), *fds])
        sock.close()

    def attach(self, sock: socket.socket, header: dict[str, Any], fds: list[int]) -> None:
        """Send an operation's events from an offset on."""
        self._attach(self._known(header), sock, header)

    def control(self, sock: socket.socket, header: dict[str, Any], fds: list[int]) -> None:
        """Let a connection send frames to an operation."""
        operation = self._known(header)
        if operation.supervisor and operation.ended is None:
            operation.supervisor.tell({"do": "control"}, [sock.fileno()])
            sock.close()
        else:
            answer.reply(self._loop, sock, {"running": False})

    def operations(self, sock: socket.socket, header: dict[str, Any], fds: list[int]) -> None:
        """List what is known."""
        self._operations.expire(time.monotonic())
        found = [operation.describe() for operation in self._operations]
        answer.reply(self._loop, sock, {"operations": found})

    def _known(self, header: dict[str, Any]) -> Operation:
        self._operations.expire(time.monotonic())
        operation = self._operations.get(check_id(header.get("id")))
        if operation is None:
            raise errors.OperationNotFoundError(context={"id": header.get("id")})
        return operation

    def _attach(self, operation: Operation, sock: socket.socket, header: dict[str, Any]) -> None:
        offset = max(0, int(header.get("from_offset") or 0))
        if operation.ended is None:
            operation.supervisor.tell({"do": "attach", "from_offset": offset}, [sock.fileno()])
            sock.close()
        else:
            answer.Answer(self._loop, sock, journal.resume(_kept(operation), offset))

    def _on_report(self, worker: Worker, message: Message) -> None:
        operation = worker.operation
        if operation is None:
            return
        if message.body["report"] == "started":
            operation.pid = message.body["pid"]
        elif operation.ended is None:
            operation.last = message.body["last"].encode("latin-1")
            operation.tail = message.body.get("tail", "").encode("latin-1")
            operation.size = len(operation.tail)
            if message.fds:
                operation.tail_fd = message.fds[0]
                operation.size = os.fstat(operation.tail_fd).st_size
            self._operations.end(operation, time.monotonic())

    def _on_left(self, worker: Worker) -> None:
        operation = worker.operation
        if operation is None:
            return
        operation.supervisor = None
        if operation.ended is None:
            lost = errors.CommandExecutionError(
                "the command's supervisor was killed; its outcome is not known",
                context={"id": operation.id},
            )
            operation.last = frames.encode_json(Kind.ERROR, lost.to_wire())
            self._operations.end(operation, time.monotonic())


def _kept(operation: Operation) -> Iterator[bytes]:
    data = operation.tail
    if operation.tail_fd is not None:
        data = read_all(operation.tail_fd)
    at = 0
    while at < len(data):
        end = at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
        yield data[at:end]
        at = end
    yield operation.last
