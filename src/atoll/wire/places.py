"""Where an engine keeps things when nobody says otherwise: the system's places, or the user's.

Clients look for the engine's socket where the engine puts it, so both ask here. Pure.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

STATE_DIR: Final = Path("/var/lib/atoll")
CACHE_DIR: Final = Path("/var/cache/atoll")
"""Of root."""


def state_dir(uid: int, environment: Mapping[str, str]) -> Path:
    """Return the default state directory of the user *uid*."""
    return STATE_DIR if uid == 0 else _of_user(environment, "XDG_STATE_HOME", ".local/state")


def cache_dir(uid: int, environment: Mapping[str, str]) -> Path:
    """Return the default cache directory of the user *uid*."""
    return CACHE_DIR if uid == 0 else _of_user(environment, "XDG_CACHE_HOME", ".cache")


def _of_user(environment: Mapping[str, str], variable: str, default: str) -> Path:
    """By the XDG base directory specification, which has relative paths ignored."""
    told = environment.get(variable, "")
    base = Path(told) if told.startswith("/") else Path(environment.get("HOME") or "/", default)
    return base / "atoll"
