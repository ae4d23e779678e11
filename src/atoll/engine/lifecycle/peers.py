"""Other engines with the same directory of records, as far as a sandbox has to know of them."""

from typing import Protocol

from atoll.wire.sandbox import SandboxOptions


class Peers(Protocol):
    """Who else may be at work."""

    def alive(self, actor: str) -> bool:
        """Whether the engine *actor* may still be at work."""

    def note_step(self, wanted: SandboxOptions) -> float:
        """Return the seconds of activity of a sandbox that are worth a write of its record."""

    async def outlived(self, host_ref: str, lease: float) -> None:
        """Wait until a start, which nobody may renew any more, has ended itself.

        Args:
            lease: its seconds.
        """


class Alone:
    """An engine whose records nobody else writes."""

    def alive(self, actor: str) -> bool:  # noqa: ARG002
        """Nobody is: whatever is found under way was left by an engine that died."""
        return False

    def note_step(self, wanted: SandboxOptions) -> float:  # noqa: ARG002
        """Return the smallest step: a write costs next to nothing."""
        return 1.0

    async def outlived(self, host_ref: str, lease: float) -> None:
        """Nobody renewed anything."""
        raise AssertionError(f"{host_ref} has a lease of {lease} s, and nobody to renew it")
