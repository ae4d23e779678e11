"""Seals values with a key in a file: what lies in the store is worth nothing without it."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken

from atoll.host import durable


class Seal:
    """Seals and opens.

    Args:
        file: of the key, 0600; made with the first value that is sealed.
    """

    def __init__(self, file: Path) -> None:
        self.file = file

    def close(self, value: str) -> bytes:
        """Return *value*, sealed.

        Raises:
            OSError: there is no key, and none can be made.
        """
        return Fernet(self._key() or self._made()).encrypt(value.encode())

    def open(self, sealed: bytes) -> str | None:
        """Return the value; None: the key it was sealed with is gone."""
        key = self._key()
        try:
            return Fernet(key).decrypt(sealed).decode() if key else None
        except InvalidToken:
            return None

    def _key(self) -> bytes | None:
        """Return the key; None: there is none, or what is there is no key."""
        try:
            key = self.file.read_bytes()
            Fernet(key)
        except (FileNotFoundError, ValueError):
            return None
        return key

    def _made(self) -> bytes:
        """Make a key that is on the disk, whole, before anything is sealed with it."""
        key, draft = Fernet.generate_key(), self.file.with_suffix(f".{secrets.token_hex(4)}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            with open(os.open(draft, flags, 0o600), "wb") as file:  # noqa: PTH123 - a descriptor
                file.write(key)
                file.flush()
                os.fsync(file.fileno())
            draft.rename(self.file)
        except BaseException:
            with suppress(FileNotFoundError):
                draft.unlink()
            raise
        durable.sync(self.file.parent)
        return key
