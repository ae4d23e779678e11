"""Whether the host passes packets on between its interfaces: one switch for each family."""

from pathlib import Path

import structlog

_SYSCTL = Path("/proc/sys/net")
_FORWARD = _SYSCTL / "ipv4/ip_forward"
_FORWARD6 = _SYSCTL / "ipv6/conf/all/forwarding"

_log = structlog.get_logger(__name__)


def enable() -> None:
    """Have the host forward IPv4."""
    if _FORWARD.read_text().strip() == "0":
        _FORWARD.write_text("1")
        _log.warning("IPv4 forwarding was off on this host and is on now", path=str(_FORWARD))


def enabled6() -> bool:
    """Tell whether the host forwards IPv6."""
    return _FORWARD6.exists() and _FORWARD6.read_text().strip() != "0"


def enable6() -> None:
    """Have the host forward IPv6.

    A kernel that forwards stops accepting router advertisements, and with them loses its own way
    out, unless each interface is told to go on (2).
    """
    if enabled6() or not _FORWARD6.exists():
        return
    for accepts in _SYSCTL.glob("ipv6/conf/*/accept_ra"):
        if accepts.read_text().strip() == "1":
            accepts.write_text("2")
    _FORWARD6.write_text("1")
    _log.warning("IPv6 forwarding was off on this host and is on now", path=str(_FORWARD6))
