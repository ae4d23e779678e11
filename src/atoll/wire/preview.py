"""The one parser of preview host names: ``{port}-{sandbox id}-{token}.{hostname}``.

A token has no hyphen, so the label is read from both ends and the id is what stands between.
Anything else is not a preview, and whoever asked goes on as if there were no previews.
"""

import re
from typing import NamedTuple

MAX_ID = 40
"""Longest sandbox id that fits a host label (63) with port (5), token (16) and two hyphens."""

_LABEL = re.compile(r"([1-9][0-9]{3,4})-([a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?)-([a-z0-9_]{1,16})")


class Target(NamedTuple):
    """What a preview host name names."""

    port: int
    sandbox_id: str
    token: str
    hostname: str


def parse(host: str) -> Target | None:
    """Return the target of the host name *host* (without a port), or None if it is no preview.

    Host names are compared as DNS does: case and one trailing dot do not matter.
    """
    if not host.isascii():  # some letters become ASCII when they are made lower case
        return None
    label, dot, hostname = host.lower().removesuffix(".").partition(".")
    match = _LABEL.fullmatch(label)
    if not match or not dot or "" in hostname.split("."):
        return None
    port = int(match[1])
    if not 1024 <= port <= 65535:
        return None
    return Target(port, match[2], match[3], hostname)
