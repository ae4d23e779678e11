"""The certificate authority of a sandbox, and the certificates that it signs. Only it trusts them.

The engine makes the authority and keeps its key; the gateway has it in memory. Keys of servers live as
long as the gateway's process: one key for all names, which only ever stands beside this authority.
"""

import ssl
import tempfile
from collections import OrderedDict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from atoll.network import hosts
from atoll.network.gateway.protocol import Authority

AUTHORITY_DAYS = 3_650
LEAF_DAYS = 30
"""Days that a server's certificate is valid; it is made anew after half of them."""

SKEW = timedelta(days=2)
"""Certificates are valid this long before they are made: clocks in sandboxes may be behind."""

MAX_CONTEXTS = 512
"""Certificates kept, of all sandboxes: about 50 KB each with what TLS keeps beside it."""


def new_authority(name: str) -> Authority:
    """Return a new authority, whose certificate shows *name* (at most 64 characters)."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + timedelta(days=AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(_pem(certificate), _key_pem(key))


class Certificates:
    """TLS of our own for the names that sandboxes connect to.

    Args:
        folder: where a certificate is for the moment that OpenSSL reads it, which it does from
            files only. On a file system in memory in a gateway that is confined.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._contexts: OrderedDict[tuple[str, ...], tuple[datetime, ssl.SSLContext]] = (
            OrderedDict()
        )

    def context(self, authority: Authority, *names: str) -> ssl.SSLContext:
        """Return a server's TLS for *names*, which may be addresses, as *authority* signs it."""
        place = (authority.certificate, *names)
        kept = self._contexts.pop(place, None)
        if kept is None or kept[0] < datetime.now(UTC):
            renew = datetime.now(UTC) + timedelta(days=LEAF_DAYS / 2)
            kept = renew, self._made(authority, names)
        self._contexts[place] = kept
        while len(self._contexts) > MAX_CONTEXTS:
            self._contexts.popitem(last=False)
        return kept[1]

    def _made(self, authority: Authority, names: Sequence[str]) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        content = leaf(authority, names, self._key) + authority.certificate + _key_pem(self._key)
        with tempfile.NamedTemporaryFile("w", dir=self._folder) as file:
            file.write(content)
            file.flush()
            context.load_cert_chain(file.name)
        return context


def leaf(authority: Authority, names: Sequence[str], key: ec.EllipticCurvePrivateKey) -> str:
    """Return a certificate for *names* in PEM."""
    issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
    signer = serialization.load_pem_private_key(authority.key.encode(), None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise TypeError("an authority's key is of P-256")
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + timedelta(days=LEAF_DAYS))
        # Critical: the subject is empty, for a name of more than 64 characters has no place there.
        .add_extension(x509.SubjectAlternativeName(map(_general, names)), critical=True)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    return _pem(certificate)


def _general(host: str) -> x509.GeneralName:
    address = hosts.address(host)
    return x509.DNSName(host) if address is None else x509.IPAddress(address)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
