"""Whom certificates of servers are checked by: the host's authorities, read once.

OpenSSL's own default may be a folder that it looks into at each check; a process that is confined sees
no such folder, so the bundle is read whole.
"""

import ssl
from collections.abc import Iterable
from pathlib import Path

BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/ssl/ca-bundle.pem"),
    Path("/etc/ssl/cert.pem"),
)
"""Where distributions keep theirs: Debian, Fedora, SUSE, Alpine. The first that is there counts."""


def trust(more: Iterable[Path] = (), bundles: Iterable[Path] = BUNDLES) -> ssl.SSLContext:
    """Return TLS for connections to servers.

    Args:
        more: files with authorities besides the host's.
        bundles: the host's, the first that is there.

    Raises:
        OSError: a file of *more* cannot be read, or is none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    for bundle in bundles:
        if bundle.is_file():
            context.load_verify_locations(bundle)
            break
    for file in more:
        context.load_verify_locations(file)
    return context
