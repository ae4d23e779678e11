"""An engine with the fake runtime."""

from integration.cli.conftest import engine

__all__ = ["engine"]
