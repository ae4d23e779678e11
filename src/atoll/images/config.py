"""What an image asks for: the part of its OCI configuration that a sandbox honours.

The configuration is foreign data. Fields of the wrong type count as missing, and names that
could not be environment variables or ports are dropped: `EXPOSE 80 # web` is written in many
Dockerfiles, and some builders take the comment's words for ports.
"""

from typing import Any

import msgspec

_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ImageConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults of the sandboxes made from an image."""

    env: dict[str, str] = {}
    workdir: str = "/workspace"
    user: str = "0:0"  # user[:group], names or numbers, as the image has it
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()


def image_config(document: Any) -> ImageConfig:
    """Read an OCI image configuration document, already decoded from JSON."""
    config = _mapping(_mapping(document).get("config"))
    workdir = config.get("WorkingDir")
    user = config.get("User")
    return ImageConfig(
        env={"PATH": _DEFAULT_PATH} | _environment(config.get("Env")),
        workdir=workdir if isinstance(workdir, str) and workdir.startswith("/") else "/workspace",
        user=user if isinstance(user, str) and user and "\0" not in user else "0:0",
        entrypoint=_strings(config.get("Entrypoint")),
        cmd=_strings(config.get("Cmd")),
        ports=_ports(config.get("ExposedPorts")),
    )


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _strings(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(item for item in value if isinstance(item, str) and "\0" not in item)


def _environment(value: Any) -> dict[str, str]:
    pairs = (item.partition("=") for item in _strings(value))
    return {name: text for name, sign, text in pairs if name and sign}


def _ports(value: Any) -> tuple[int, ...]:
    numbers = (key.partition("/") for key in _mapping(value))
    ports = {int(n) for n, _, kind in numbers if n.isdecimal() and n.isascii() and kind != "udp"}
    return tuple(sorted(port for port in ports if 1 <= port <= 65_535))
