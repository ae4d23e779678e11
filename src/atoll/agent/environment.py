"""The environment of a command: what is always there, and how layers of it are merged. Pure."""

from collections.abc import Mapping
from typing import Final

from atoll.agent.users import User

DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def layered(*layers: Mapping[str, str | None]) -> dict[str, str]:
    """Return the environment that results from *layers*, later ones first; None unsets."""
    merged: dict[str, str] = {}
    for layer in layers:
        for name, value in layer.items():
            if value is None:
                merged.pop(name, None)
            else:
                merged[name] = value
    return merged


def base_env(user: User, *, pty: bool) -> dict[str, str]:
    """Return what a command has in its environment even if nobody set it."""
    env = {"PATH": DEFAULT_PATH, "HOME": user.home, "USER": user.name, "LOGNAME": user.name}
    return env | {"TERM": "xterm-256color"} if pty else env
