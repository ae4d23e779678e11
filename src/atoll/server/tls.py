"""TLS of the TCP listener, from files that the settings name."""

import asyncio
import signal
import ssl
from pathlib import Path

import structlog

from atoll.errors import InvalidConfigError
from atoll.settings import ServerSettings

log = structlog.get_logger(__name__)

HANDSHAKE_TIME = 5.0
"""Seconds a handshake may take: until then nothing else limits a connection."""


def context_of(settings: ServerSettings) -> ssl.SSLContext | None:
    """Return what TLS is spoken with, or None where the settings name no certificate.

    Raises:
        InvalidConfigError: a file cannot be read or does not fit; it says which.
    """
    if settings.tls_certificate is None:
        if settings.tls_key is not None:
            raise InvalidConfigError(
                "server.tls_key is set without server.tls_certificate",
                context={"setting": "server.tls_certificate"},
            )
        return None
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.minimum_version = ssl.TLSVersion.TLSv1_2
    found.set_alpn_protocols(["http/1.1"])
    _load(found, settings.tls_certificate, settings.tls_key)
    return found


def renew_on_hangup(context: ssl.SSLContext, settings: ServerSettings) -> None:
    """Read the files again at SIGHUP, for the connections after it.

    Files that do not fit are told in the log, and what was in force stays.
    """

    def renew() -> None:
        try:
            context_of(settings)  # first by itself: half of a pair must not be loaded
            _load(context, settings.tls_certificate, settings.tls_key)
        except InvalidConfigError as error:
            log.error("certificate not renewed", reason=str(error))
        else:
            log.info("certificate renewed")

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, renew)


def _load(context: ssl.SSLContext, certificate: Path | None, key: Path | None) -> None:
    if certificate is None:
        return
    try:
        # A password would be asked for on a terminal that a service has not.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ssl.SSLError, ValueError) as error:
        raise _refused(certificate, key, error) from error


def _refused(certificate: Path, key: Path | None, error: Exception) -> InvalidConfigError:
    reason = getattr(error, "strerror", None) or str(error)
    return InvalidConfigError(
        f"TLS with the certificate {certificate} and the key {key or certificate} fails: {reason}",
        context={"certificate": str(certificate), "key": str(key or certificate)},
        suggestion="both are PEM files; the key has no password and belongs to the certificate",
    )
