"""Answers the engine's hello before the rest of the agent is loaded.

An engine says hello as soon as the container runs, and writes down that the sandbox is started
when it is answered. Meanwhile the rest loads: 10 of 28 ms (measured) that nobody waits for any more.
What is sent next waits in the listening socket.
"""

import json
import os
import socket
from collections.abc import Mapping
from typing import Any, Final

from atoll.wire import frames
from atoll.wire.agent import PROTOCOL
from atoll.wire.frames import Kind

PATIENCE: Final = 0.02
"""Seconds that a connection has to send its HEADER: the engine sends both at once."""

_LIMIT: Final = 4_096
"""Bytes: a hello is far shorter."""

_PREFIX: Final = 5


def hello(version: str, generation: int, image: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return who this agent is, and what it alone knows of its image."""
    found = {"image": image} if image else {}
    return {
        **found,
        "protocol": PROTOCOL,
        "version": version,
        "generation": generation,
        "pid": os.getpid(),
    }


def greet(data: bytes) -> socket.socket | None:
    """Answer the hello that is there already; return a connection that wants something else.

    Only where no token is needed: by an address everybody inside could ask.
    """
    try:
        config = json.loads(data)
        if config.get("tcp") is not None or config.get("token"):
            return None
        with socket.socket(fileno=os.dup(config.get("listen", 3))) as listener:
            listener.setblocking(False)
            connection, _ = listener.accept()
    except (OSError, ValueError, AttributeError, TypeError):  # whoever opens it properly tells
        return None
    return None if _answered(connection, config) else connection


def _answered(connection: socket.socket, config: dict[str, Any]) -> bool:
    """Answer a hello; leave anything else unread."""
    connection.settimeout(PATIENCE)
    try:
        seen = connection.recv(_LIMIT, socket.MSG_PEEK)
        if not _is_hello(seen):
            return False
        connection.recv(len(seen))
        body = hello(config.get("version", ""), config.get("generation", 0))
        connection.sendall(frames.encode_json(Kind.REPLY, body))
    except OSError:
        return False
    connection.close()
    return True


def _is_hello(seen: bytes) -> bool:
    """Whether *seen* is one whole HEADER that says hello."""
    whole = len(seen) > _PREFIX and int.from_bytes(seen[1:_PREFIX], "big") == len(seen) - _PREFIX
    if not whole or seen[0] != Kind.HEADER:
        return False
    try:
        header = json.loads(seen[_PREFIX:])
    except ValueError:
        return False
    return isinstance(header, dict) and header.get("op") == "hello"
