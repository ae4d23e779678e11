"""Names of files as text on the wire, where the engine reads them itself: the rule of `wire.files`.

The agent has the same rule in `atoll.agent.files.pathnames`; a test holds them together.
"""

from atoll.errors import ValidationFailedError

_ESCAPE = 0xEF00
_FIRST, _LAST = chr(_ESCAPE + 0x80), chr(_ESCAPE + 0xFF)


def to_text(name: bytes) -> str:
    """Return the form on the wire of a name or path."""
    return "".join(map(_escaped, name.decode("utf-8", "surrogateescape")))


def to_bytes(text: str) -> bytes:
    """Return the name or path that *text* stands for.

    Raises:
        ValidationFailedError: it holds a NUL character or a lone surrogate.
    """
    if "\0" in text:
        raise ValidationFailedError("a path cannot hold a NUL character")
    try:
        return b"".join(map(_unescaped, text))
    except UnicodeEncodeError as error:
        raise ValidationFailedError(f"not a path: {error.reason}") from error


def _escaped(char: str) -> str:
    if "\udc80" <= char <= "\udcff":
        return chr(_ESCAPE | ord(char) & 0xFF)
    if _FIRST <= char <= _LAST:
        return "".join(chr(_ESCAPE | byte) for byte in char.encode())
    return char


def _unescaped(char: str) -> bytes:
    return bytes([ord(char) & 0xFF]) if _FIRST <= char <= _LAST else char.encode()
