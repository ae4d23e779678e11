"""21: what a visitor of previews gets who has the address of another one, or none, or two requests in one."""

import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

from atoll.probes.box import Box
from atoll.probes.site import Site, canary
from atoll.wire import preview

_PORT = 8_000
_BITS = 80
_GUESSES = 400
_SECONDS = 10.0


def previews(site: Site) -> list[str]:
    """21: a preview is reached by its own address only, as long as it lasts, and by one request each."""
    # Ids of their own: misses are counted by id, and a probe may run again within the minute.
    a, b = site.box(), site.box()
    marks = canary(), canary()
    hosts = [_served(box, mark) for box, mark in zip((a, b), marks, strict=True)]
    at = urlsplit(site.hello["url"])
    visitor = _Visitor(str(at.hostname), int(at.port or 80))
    if not _opens(visitor, hosts[0], marks[0]):
        return ["the preview itself cannot be reached"]
    found = [*_mixed(visitor, hosts, marks), *_smuggled(visitor, hosts, marks)]
    found += _guessed(visitor, hosts[0])
    a.told("DELETE")
    if marks[0] in visitor.get(hosts[0]):
        found.append("reached after the sandbox was destroyed")
    b.told("DELETE", f"/ports/{_PORT}")
    return [
        *found,
        *(["reached after it was unexposed"] if marks[1] in visitor.get(hosts[1]) else []),
    ]


def _opens(visitor: "_Visitor", host: str, marker: str) -> bool:
    """Wait for the preview's first answer: a busy host takes longer than a visitor waits."""
    end = time.monotonic() + _SECONDS
    while marker not in visitor.get(host):
        if time.monotonic() > end:
            return False
    return True


def _served(box: Box, marker: str) -> str:
    """Serve *marker* in the sandbox; return the host name of its preview."""
    box.serve(marker, _PORT)
    return str(urlsplit(box.told("POST", "/ports", json={"port": _PORT})["url"]).netloc)


class _Visitor:
    """Sends bytes, and returns the text that comes back until the end or a pause."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port

    def get(self, host: str) -> str:
        return self.send(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())

    def send(self, data: bytes) -> str:
        told = b""
        with socket.create_connection(self._address, timeout=_SECONDS) as connection:
            try:
                connection.sendall(data)
                connection.settimeout(1.0)
                while piece := connection.recv(1 << 16):
                    told += piece
            except OSError:
                pass
        return told.decode("latin-1")


def _mixed(visitor: _Visitor, hosts: list[str], marks: tuple[str, str]) -> Iterator[str]:
    """The token of A at B, at another port, and what is no token at all."""
    first, second = (preview.parse(host.partition(":")[0]) for host in hosts)
    if first is None or second is None:
        yield f"{hosts} are no names of previews"
        return
    tail = first.hostname
    for name, host in {
        "the token of A at B": f"{_PORT}-{second.sandbox_id}-{first.token}.{tail}",
        "the token of A at another port": f"{_PORT + 1}-{first.sandbox_id}-{first.token}.{tail}",
        "no token": f"{_PORT}-{first.sandbox_id}-.{tail}",
        "a token in part": f"{_PORT}-{first.sandbox_id}-{first.token[:-1]}.{tail}",
        "a token and more": f"{_PORT}-{first.sandbox_id}-{first.token}x.{tail}",
        "two names in one": f"{_PORT}-{second.sandbox_id}-{second.token}.{_PORT}-{first.sandbox_id}-x.{tail}",
    }.items():
        answer = visitor.get(host)
        if marks[0] in answer or (marks[1] in answer and "two names" not in name):
            yield f"reached by {name}"


def _smuggled(visitor: _Visitor, hosts: list[str], marks: tuple[str, str]) -> Iterator[str]:
    """Heads that two parsers could read differently, with a request for B inside one for A."""
    hidden = f"GET /hidden HTTP/1.1\r\nHost: {hosts[1]}\r\n\r\n"
    a = f"Host: {hosts[0]}\r\n"
    size = f"Content-Length: {len(hidden)}\r\n"
    chunked = "Transfer-Encoding: chunked\r\n"
    heads = {
        "CL and TE": f"{a}{size}{chunked}", "TE and CL": f"{a}{chunked}Content-Length: 4\r\n",
        "TE.TE": f"{a}{chunked}Transfer-Encoding: identity\r\n", "two CL": f"{a}{size}Content-Length: 0\r\n",
        "obs-fold": f"{a}X: y\r\n Transfer-Encoding: chunked\r\n{size}",
        "space before the colon": f"{a}Content-Length : {len(hidden)}\r\n",
        "two Hosts": f"{a}Host: {hosts[1]}\r\n", "no Host": size,
        "bare LF": f"{a}X: y\nContent-Length: {len(hidden)}\r\n", "CL with a sign": f"{a}Content-Length: +4\r\n",
        "TE with a tail": f"{a}Transfer-Encoding: chunked, x\r\n", "NUL": f"{a}X: \0\r\n{size}",
    }  # fmt: skip
    for name, head in heads.items():
        answer = visitor.send(f"POST / HTTP/1.1\r\n{head}\r\n0\r\n\r\n{hidden}".encode())
        if any(mark in answer for mark in marks) or "/hidden" in answer:
            yield f"passed: {name}"


def _guessed(visitor: _Visitor, host: str) -> Iterator[str]:
    """Tokens have so many bits that guesses which are limited find none."""
    found = preview.parse(host.partition(":")[0])
    if found is None:
        return
    if len(found.token) * 5 < _BITS:
        yield f"a token of {len(found.token)} letters"
    end = time.monotonic() + _SECONDS
    for number in range(_GUESSES):
        guess = f"{found.port}-{found.sandbox_id}-{number:016d}.{found.hostname}"
        if " 429 " in visitor.get(guess).partition("\r\n")[0] or time.monotonic() > end:
            return
    yield f"{_GUESSES} guesses in {_SECONDS:.0f} s are not limited"
