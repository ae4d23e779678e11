"""The gateway's process. Started by `atoll.network.gateway.keeper`, which hands it its sockets."""

import argparse
import asyncio
import encodings.idna
import importlib
import signal
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

import dns.rdata
import structlog
import uvloop

from atoll.network.gateway import certificates, confinement
from atoll.network.gateway.control import Control
from atoll.network.gateway.dialing import Dialer
from atoll.network.gateway.handover import Listeners
from atoll.network.gateway.nameservers import Nameservers
from atoll.network.gateway.service import Service
from atoll.network.gateway.shared import Shared
from atoll.network.gateway.trust import trust

_LATE = (encodings.idna.__name__, "encodings.latin_1", "stringprep", "unicodedata", "traceback")
"""Modules that others import when they need them, which is too late here."""


def main() -> None:
    """Run until the engine says stop."""
    args = _arguments().parse_args()
    _log_plainly()
    for name in _LATE:
        importlib.import_module(name)
    dns.rdata.load_all_types()  # type: ignore[no-untyped-call]
    context = trust(args.trust)
    # Cryptography imports parts of itself when they are used first.
    certificates.Certificates(args.logs).context(certificates.new_authority("none"), "none")
    logs, keys = args.logs, args.logs
    if args.uid is not None:
        confinement.confine(args.logs, args.uid)
        logs, keys = Path("/"), Path("/") / confinement.KEYS
    handover = None if args.handover is None else socket.socket(fileno=args.handover)
    listeners = Listeners(
        connections=_sockets(args.connections),
        dns_tcp=_sockets(args.dns_tcp),
        dns_udp=_sockets(args.dns_udp),
    )
    dialer = Dialer(context)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        service = partial(Service, logs=logs, handover=handover)
        runner.run(_serve(dialer, listeners, socket.socket(fileno=args.control), service, keys))


async def _serve(
    dialer: Dialer,
    listeners: Listeners,
    control_listener: socket.socket,
    make: Callable[[Shared], Service],
    keys: Path,
) -> None:
    control = Control()
    store = certificates.Certificates(keys)
    service = make(Shared(dialer, store, Nameservers(), control.call, control.notice))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, control.stopped.set)
    server = await control.serve(service, control_listener)
    service.open(listeners)
    structlog.get_logger(__name__).info("the egress gateway is ready")
    await control.stopped.wait()
    server.close()
    await service.close()


def _log_plainly() -> None:
    """Write log lines without anything that looks for files or modules."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ]
    )


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="atoll-egress")
    parser.add_argument("--control", type=int, required=True, help="listening unix socket")
    for name, what in (
        ("--connections", "listening TCP sockets"),
        ("--dns-tcp", "listening TCP sockets of the resolver"),
        ("--dns-udp", "UDP sockets of the resolver"),
    ):
        parser.add_argument(name, type=int, nargs="*", default=[], help=what)
    parser.add_argument("--handover", type=int, help="unix socket that listeners are sent to")
    parser.add_argument("--logs", type=Path, required=True, help="folder of the logs")
    parser.add_argument("--uid", type=int, help="who to be; without it nothing is confined")
    parser.add_argument("--trust", type=Path, action="append", default=[], help="more authorities")
    return parser


def _sockets(numbers: list[int]) -> tuple[socket.socket, ...]:
    return tuple(socket.socket(fileno=number) for number in numbers)


if __name__ == "__main__":
    main()
