"""Takes away all that an engine made on the host, for the end of a test that may have failed."""

import asyncio
from pathlib import Path

from atoll.engine.leftovers import inheritance
from atoll.engine.leftovers.registry import STORE, Registry
from atoll.settings import Settings


def remove(state_dir: Path) -> None:
    """Make the engine of *state_dir*, whose process has ended, one that is gone, and inherit."""
    (state_dir / STORE).unlink(missing_ok=True)
    asyncio.run(inheritance.settle(Settings(), Registry()))
