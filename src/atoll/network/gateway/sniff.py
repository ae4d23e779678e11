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
    """What it is. `OTHER`: none of these; the address decides.

    `DISGUISED`: TLS whose first message is none that we read, but some servers do: a ClientHello in the
    format of SSL 2 (RFC 5246, E.2), or behind a record of another kind, or in one of another version.
    """

    TLS = "tls"
    DISGUISED = "disguised"
    HTTP = "http"
    OTHER = "tcp"


_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_BLANK = b"\r\n\t "
_VERSION = re.compile(rb"\sHTTP/", re.IGNORECASE)
_HANDSHAKE = b"\x16\x03"
_RECORDS = range(0x14, 0x19)
"""First bytes of TLS: change of cipher, alert, handshake, data, heartbeat."""

_MAJOR = range(0x10)
"""Second bytes that some servers take for those of a version of TLS (3 is the one that is)."""


def kind(data: bytes, *, web: bool, ended: bool = False) -> Kind | None:
    """Return what begins with *data*, or None while that is open.

    Args:
        data: all that came.
        web: the port is one of the web: there nothing but TLS and HTTP is spoken.
        ended: no more will come, so that nothing is open.
    """
    if not data:
        return Kind.OTHER if ended else None
    if data.startswith(_HANDSHAKE):
        return Kind.TLS
    if _disguised(data):
        return Kind.DISGUISED
    if not ended and _may_become_disguised(data) and (not web or data[0] in _RECORDS):
        return None
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


def _disguised(data: bytes) -> bool:
    if data[0] in _RECORDS and len(data) > 1 and data[1] in _MAJOR:
        return True
    hello = data[_old_header(data) :]
    return hello[:1] == b"\x01" and (hello[1:2] == b"\x03" or hello[1:3] == b"\0\x02")


def _may_become_disguised(data: bytes) -> bool:
    if data[0] in _RECORDS and len(data) == 1:
        return True
    hello = data[_old_header(data) :]
    return b"\x01\x03".startswith(hello) or b"\x01\0\x02".startswith(hello)


def _old_header(data: bytes) -> int:
    """Return how many bytes stand before a message in the format of SSL 2: two, or with padding three."""
    return 2 if data[0] & 0x80 else 3


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
