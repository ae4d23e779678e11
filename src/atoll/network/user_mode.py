"""The network of sandboxes without root: loopback only.

A network namespace that belongs to a sandbox's user namespace has no way out until a program of
the host carries its packets. Nothing is made here: the namespace comes and goes with the sandbox,
and its ports are reached through the agent.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from atoll.network.filter import Mode


class Loopback(msgspec.Struct, frozen=True):
    """A namespace that the runtime makes."""

    netns: Path | None = None
    address: str = "127.0.0.1"
    addresses: tuple[str, ...] = ("127.0.0.1",)
    nameservers: tuple[str, ...] = ()


class UserNetworks:
    """Has nothing to give, to keep or to take back."""

    closes = True

    async def acquire(self, host_ref: str) -> Loopback:
        """Return the description of a fresh namespace."""
        del host_ref
        return Loopback()

    async def release(self, host_ref: str) -> None:
        """Do nothing: it went with the sandbox."""

    async def adopt(self, host_refs: Iterable[str]) -> None:
        """Do nothing."""

    async def set_mode(self, host_ref: str, mode: Mode) -> None:
        """Do nothing: there is no way out to open or to close."""

    async def traffic(self, host_ref: str) -> tuple[int, int]:
        """Return nothing: loopback is not counted."""
        del host_ref
        return 0, 0

    async def list(self) -> list[str]:
        """Return nothing."""
        return []
