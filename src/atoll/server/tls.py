"""TLS of the TCP listener, from files that the settings name."""

import ssl
from pathlib import Path

from atoll.errors import InvalidConfigError
from atoll.settings import ServerSettings

HANDSHAKE_TIME = 5.0
"""Seconds a handshake may take: until then nothing else limits a connection."""


def context(settings: ServerSettings) -> ssl.SSLContext | None:
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
    try:
        # A password would be asked for on a terminal that a service has not.
        found.load_cert_chain(settings.tls_certificate, settings.tls_key, password=lambda: "")
    except (OSError, ssl.SSLError, ValueError) as error:
        raise _refused(settings.tls_certificate, settings.tls_key, error) from error
    return found


def _refused(certificate: Path, key: Path | None, error: Exception) -> InvalidConfigError:
    reason = getattr(error, "strerror", None) or str(error)
    return InvalidConfigError(
        f"TLS with the certificate {certificate} and the key {key or certificate} fails: {reason}",
        context={"certificate": str(certificate), "key": str(key or certificate)},
        suggestion="both are PEM files; the key has no password and belongs to the certificate",
    )
