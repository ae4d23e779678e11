"""How much still fits into one answer.

An answer is one frame, so lists end early, and say so, before it is full. Texts are counted as
they are encoded: a control character takes six bytes in JSON, an emoji twelve.
"""

from json.encoder import encode_basestring_ascii
from typing import Final

from atoll.wire.frames import MAX_FRAME

ANSWER_BYTES: Final = MAX_FRAME // 2


class Room:
    """Room in one answer, in bytes and in entries.

    Args:
        entries: how many are asked for.
        overhead: bytes of an entry beside its texts.
    """

    def __init__(self, entries: int, *, overhead: int) -> None:
        self._entries = entries
        self._overhead = overhead
        self._bytes = ANSWER_BYTES

    @property
    def is_full(self) -> bool:
        """Whether another entry must not be added."""
        return self._entries <= 0 or self._bytes <= 0

    def take(self, *texts: str) -> None:
        """Count one entry with these texts, none of them longer than some ten thousand."""
        self._entries -= 1
        self._bytes -= self._overhead + sum(len(encode_basestring_ascii(text)) for text in texts)
