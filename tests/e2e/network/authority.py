"""A certificate authority, and certificates for whatever name is asked for."""

import datetime as dt
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = dt.timedelta(days=1)


class Authority:
    """Makes certificates.

    Args:
        path: where its own certificate is written, for clients that are to trust it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Internet of a test")])
        self._server_key = ec.generate_private_key(ec.SECP256R1())
        self._contexts: dict[str, ssl.SSLContext] = {}
        certificate = self._certificate(self._name, self._key, (x509.BasicConstraints(True, None),))
        path.write_bytes(_pem(certificate))

    def context(self, name: str) -> ssl.SSLContext:
        """Return a server's context with a certificate for a name or an address."""
        if name not in self._contexts:
            context = self._contexts[name] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.set_alpn_protocols(["http/1.1"])
            context.load_cert_chain(self.chain(name))
        return self._contexts[name]

    def chain(self, name: str) -> Path:
        """Return a file with a certificate for *name* and its key."""
        path = self.path.with_name(f"server-{name.replace(':', '_')}.pem")
        if not path.exists():
            subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
            names = x509.SubjectAlternativeName([_general(name)])
            certificate = self._certificate(subject, self._server_key, (names,))
            path.write_bytes(_pem(certificate) + _key_pem(self._server_key))
        return path

    def _certificate(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        extensions: tuple[x509.ExtensionType, ...],
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + 30 * _DAY)
        )
        for extension in extensions:
            builder = builder.add_extension(
                extension, critical=isinstance(extension, x509.BasicConstraints)
            )
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        return (
            builder.add_extension(authority, critical=False)
            .add_extension(own, critical=False)
            .sign(self._key, hashes.SHA256())
        )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
