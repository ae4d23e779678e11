"""What a connection speaks, by its first bytes. Pure.

Whoever forges them deceives nobody: the server gets the same bytes. Only what no web server would
take for a request may pass as something else, so whatever looks like the beginning of one is HTTP
and has to stand the strict parser.
"""

import enum
import re

MAX = 16_384
"""Bytes that are looked at. A request line or an opening of another protocol is shorter."""


class Kind(enum.Enum):
    """What it is. `OTHER`: neither; the address decides."""

    TLS = "tls"
    HTTP = "http"
    OTHER = "tcp"


_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_BLANK = b"\r\n\t "
_VERSION = re.compile(rb"\sHTTP/", re.IGNORECASE)
_HANDSHAKE = b"\x16\x03"


def kind(data: bytes, *, web: bool, ended: bool = False) -> Kind | None:
    """Return what begins with *data*, or None while that is open.

    Args:
        data: all that came.
        web: the port is one of the web: there nothing but TLS and HTTP is spoken.
        ended: no more will come, so that nothing is open.
    """
    if ended and not data:
        return Kind.OTHER
    if _HANDSHAKE.startswith(data[:2]) and not (ended and len(data) < 2):
        return Kind.TLS if len(data) >= 2 else None
    if web:
        return Kind.HTTP
    line, whole = _first_line(data)
    if whole:
        return Kind.HTTP if _is_request(line) else Kind.OTHER
    if ended and not re.search(rb"[ \t]", line):
        return Kind.OTHER  # a word alone is no request in any version of HTTP
    if ended or len(data) >= MAX:
        return Kind.HTTP if _may_become_request(line) else Kind.OTHER
    return None if _may_become_request(line) else Kind.OTHER


def _first_line(data: bytes) -> tuple[bytes, bool]:
    """Return the first line that is not blank, and whether it is whole."""
    line, end, _ = data.lstrip(_BLANK).partition(b"\n")
    return line, bool(end)


def _is_request(line: bytes) -> bool:
    return _may_become_request(line) and bool(_VERSION.search(line))


def _may_become_request(line: bytes) -> bool:
    """Tell whether a method, or what may be the beginning of one, stands first."""
    word = re.split(rb"[ \t]", line, maxsplit=1)[0].rstrip(b"\r")
    return not word or bool(_METHOD.fullmatch(word))
