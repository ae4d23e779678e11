"""Agents that were taken over: what one can answer to the engine that asked it something.

Each is a function that has a connection to itself, after the engine's HEADER came. It ends when the
engine hangs up, which is an `OSError` here.
"""

import itertools
import json
import secrets
import socket
import time
from collections.abc import Callable, Mapping

from atoll.wire import frames
from atoll.wire.frames import Kind

Peer = Callable[[socket.socket], None]

_CHUNK = bytes(1 << 16)
_HUGE = b"\xff\xff\xff\xff"  # a length: 4 GiB
_NEGATIVE = -(1 << 63)


def garbage(peer: socket.socket) -> None:
    """Bytes that mean nothing, without end."""
    while True:
        peer.sendall(secrets.token_bytes(1 << 16))


def announced(peer: socket.socket) -> None:
    """A frame of 4 GiB of each kind that has a body; its bytes come, more than it announced."""
    peer.sendall(bytes([Kind.DATA]) + _HUGE)
    while True:
        peer.sendall(_CHUNK)


def reply_announced(peer: socket.socket) -> None:
    """As `announced`, for an answer."""
    peer.sendall(bytes([Kind.REPLY]) + _HUGE)
    while True:
        peer.sendall(_CHUNK)


def negative(peer: socket.socket) -> None:
    """Numbers below zero and beyond all types wherever there are numbers."""
    exited = {"exit_code": _NEGATIVE, "stdout_bytes": -1, "offset": -1, "seq": -1, "duration": -1.0}
    reply = {"size": -1, "count": -1, "pid": -1, "generation": -1, "files": -5, "port": -1,
             "offset": _NEGATIVE, "modifiedAt": -1, "mode": 1 << 70, "protocol": -1}  # fmt: skip
    _send(peer, (Kind.STARTED, {"pid": -1}), (Kind.GAP, {"from_offset": 9, "to_offset": -9}))
    _send(peer, (Kind.REPLY, reply), (Kind.EXITED, exited))


def endless_output(peer: socket.socket) -> None:
    """Output that never ends, and an answer never."""
    _send(peer, (Kind.STARTED, {"pid": 1}))
    for seq in itertools.count():
        peer.sendall(frames.encode_output(Kind.STDOUT, seq, seq << 16, _CHUNK))


def endless_body(peer: socket.socket) -> None:
    """A file without end."""
    meta = {"path": "/x", "size": 1, "mimeType": "x", "isBinary": False, "encoding": "utf-8",
            "etag": "x", "format": "tar"}  # fmt: skip
    _send(peer, (Kind.REPLY, meta))
    while True:
        peer.sendall(frames.encode(Kind.DATA, _CHUNK))


def endless_events(peer: socket.socket) -> None:
    """Events and signs of life without end."""
    while True:
        _send(peer, (Kind.EVENT, {"type": "x" * 1_000}), (Kind.HEARTBEAT, None))


def largest_answer(peer: socket.socket) -> None:
    """As much JSON as a frame holds, as deep as it goes."""
    deep = b"[" * (frames.MAX_FRAME // 2) + b"]" * (frames.MAX_FRAME // 2)
    peer.sendall(frames.encode(Kind.REPLY, deep))


def wrong_answer(peer: socket.socket) -> None:
    """JSON that is no object, of other types than anybody asked for."""
    peer.sendall(frames.encode(Kind.REPLY, b'[1,{"a":null},"\\ud800",1e999]'))


def many_answers(peer: socket.socket) -> None:
    """A thousand answers to one question, and ends before beginnings."""
    kinds = (Kind.END, Kind.EXITED, Kind.STARTED, Kind.REPLY, Kind.ERROR, Kind.END)
    for kind in itertools.islice(itertools.cycle(kinds), 1_000):
        _send(peer, (kind, {"exit_code": 0, "pid": 1, "files": [], "code": "NOT_FOUND"}))


def wrong_ids(peer: socket.socket) -> None:
    """Names, ids and paths that lead elsewhere."""
    place = "../../../../etc/passwd"
    item = {"id": place, "name": "\x1b]0;x\x07", "session": place, "path": place, "running": True,
            "kind": "exec", "pid": 1, "createdAt": "x"}  # fmt: skip
    reply = item | {"operations": [item] * 1_000, "sessions": [item] * 1_000, "files": [item],
                    "contexts": [item], "env": {place: place}}  # fmt: skip
    _send(peer, (Kind.REPLY, reply))


def lying_error(peer: socket.socket) -> None:
    """An error in the words of the engine, with the largest text that is believed."""
    envelope = {"code": "UNAUTHORIZED", "message": "\x1b[2J" + "x" * 60_000, "status": 200,
                "context": {"key": "y"}, "retryable": True}  # fmt: skip
    _send(peer, (Kind.ERROR, envelope))


def cut(peer: socket.socket) -> None:
    """The end of the connection within a frame."""
    peer.sendall(bytes([Kind.REPLY]) + b"\0\0\1\0" + b'{"a":')


def hang_up(peer: socket.socket) -> None:
    """The end of the connection, and no more."""
    del peer


def false_offsets(peer: socket.socket) -> None:
    """Output whose positions jump, go back, and lie beyond everything; then a proper end."""
    _send(peer, (Kind.STARTED, {"pid": 1}))
    for seq, offset in ((0, 1 << 63), (7, 0), (7, 5), (0, (1 << 64) - 1), (1 << 63, 3)):
        peer.sendall(frames.encode_output(Kind.STDOUT, seq, offset, b"x"))
    _send(peer, (Kind.GAP, {"from_offset": 1 << 62, "to_offset": 0, "reason": "x"}))
    _send(peer, (Kind.EXITED, {"exit_code": 0, "offset": 1 << 60, "stdout_bytes": 1 << 60}))


def old_generation(peer: socket.socket) -> None:
    """The answer of another start of the same sandbox."""
    hello = {"protocol": 1, "version": "0.0.0", "generation": 0, "pid": 1}
    _send(peer, (Kind.REPLY, hello))


def unknown_kinds(peer: socket.socket) -> None:
    """Frames that only the engine sends, and some that nobody does."""
    for kind in (Kind.HEADER, Kind.STDIN, Kind.CANCEL, 0, 99, 255):
        peer.sendall(frames.encode_head(kind, 2) + b"{}")


def silent(peer: socket.socket) -> None:
    """Nothing at all; what is sent is read."""
    while peer.recv(1 << 16):
        pass
    time.sleep(_LONGEST)


def deaf(peer: socket.socket) -> None:
    """Nothing at all, and what is sent is not read either."""
    del peer
    time.sleep(_LONGEST)


def dripping(peer: socket.socket) -> None:
    """An answer of which a byte comes every second."""
    for byte in frames.encode(Kind.REPLY, b'{"files":[' + b" " * 4_000 + b"]}"):
        peer.sendall(bytes([byte]))
        time.sleep(1.0)


_LONGEST = 600.0

PEERS: Mapping[str, Peer] = {
    peer.__name__: peer
    for peer in (
        garbage, announced, reply_announced, negative, endless_output, endless_body, endless_events,
        largest_answer, wrong_answer, many_answers, wrong_ids, lying_error, cut, hang_up,
        false_offsets, old_generation, unknown_kinds,
    )
}  # fmt: skip
"""Name → what answers at once, or without end."""

SILENT: Mapping[str, Peer] = {peer.__name__: peer for peer in (silent, deaf, dripping)}
"""Name → what makes the engine wait as long as it waits at all."""


def _send(peer: socket.socket, *parts: tuple[int, Mapping[str, object] | None]) -> None:
    for kind, body in parts:
        payload = b"" if body is None else json.dumps(body).encode()
        peer.sendall(frames.encode(kind, payload))
