"""The host's extra CA certificates, for builds and sandboxes behind a TLS-inspecting proxy.

A certificate counts as extra when the host trusts it and its distribution did not ship it. Where
there is one, a small directory is made with the whole bundle, the extras alone, and settings for
programs that read no variable; it is mounted read-only and never copied into an image.
"""

import hashlib
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from atoll.images.layout import write_atomic

TARGET = "/run/atoll/certificates"
"""Where sandboxes and build steps see the directory: under /run, so that the empty mount point a
builder may leave in an image means nothing."""

_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
_LOCAL = ("/usr/local/share/ca-certificates", "/etc/pki/ca-trust/source/anchors")
_SHIPPED = ("/usr/share/ca-certificates",)

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----")

_WHOLE = f"{TARGET}/ca.pem"
_ENV = {
    "SSL_CERT_FILE": _WHOLE,
    "REQUESTS_CA_BUNDLE": _WHOLE,
    "PIP_CERT": _WHOLE,
    "CURL_CA_BUNDLE": _WHOLE,
    "GIT_SSL_CAINFO": _WHOLE,
    # Node adds these to its own list; the whole bundle would cost each start its parsing.
    "NODE_EXTRA_CA_CERTS": f"{TARGET}/extra.pem",
    "SYSTEM_WGETRC": f"{TARGET}/wgetrc",
    "APT_CONFIG": f"{TARGET}/apt.conf",
}

_JAVA = (
    f"-Djavax.net.ssl.trustStore={TARGET}/java.p12 -Djavax.net.ssl.trustStoreType=PKCS12"
    " -Djavax.net.ssl.trustStorePassword="
)


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a sandbox trust what the host trusts: a read-only mount and variables."""

    directory: Path  # on the host, to be mounted at TARGET
    env: dict[str, str]


def extra_certificates(
    bundle: str, local: Iterable[str], shipped: Iterable[str]
) -> tuple[str, ...]:
    """Return the PEM blocks of *bundle* and *local* that are not in *shipped*, without repeats."""
    known = {_body(block) for text in shipped for block in _PEM.findall(text)}
    found: dict[str, str] = {}
    for text in (bundle, *local):
        for block in _PEM.findall(text):
            if _body(block) not in known:
                found.setdefault(_body(block), block)
    return tuple(found.values())


def host_trust(cache_dir: Path) -> Trust | None:
    """Write the directory for this host's extra certificates under *cache_dir*. Blocking.

    Returns:
        None where the host has none: images then trust what they ship.
    """
    bundle = next((_read(Path(name)) for name in _BUNDLES if Path(name).is_file()), "")
    extra = extra_certificates(bundle, _texts(_LOCAL), _texts(_SHIPPED))
    if not extra:
        return None
    whole = "\n".join(dict.fromkeys((*_PEM.findall(bundle), *extra))) + "\n"
    name = hashlib.sha256(whole.encode()).hexdigest()[:16]
    directory = cache_dir / "certificates" / name
    if not (directory / "apt.conf").exists():
        _write(directory, whole, "\n".join(extra) + "\n")
    return Trust(directory=directory, env=dict(_ENV))


def with_authority(folder: Path, host: Trust | None, authority: str) -> Trust:
    """Write a directory of one sandbox that also trusts an authority of its own. Blocking.

    Java reads no PEM, so it gets a store with that authority alone: all it connects to is opened, or
    does not work. It says on its standard error that it picked up the option.

    Args:
        folder: of the sandbox's start.
        host: what the host's extra certificates need.
        authority: its certificate in PEM.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import NoEncryption, pkcs12

    directory = folder / "certificates"
    names = (str(host.directory / "ca.pem"),) if host else _BUNDLES
    whole = next((_read(Path(name)) for name in names if Path(name).is_file()), "")
    extra = _read(host.directory / "extra.pem") if host else ""
    _write(directory, whole + authority, extra + authority)
    entry = pkcs12.PKCS12Certificate(x509.load_pem_x509_certificate(authority.encode()), b"atoll")
    store = pkcs12.serialize_java_truststore([entry], NoEncryption())
    write_atomic(directory / "java.p12", store)
    (directory / "java.p12").chmod(0o644)
    return Trust(directory=directory, env=_ENV | {"JAVA_TOOL_OPTIONS": _JAVA})


def signature() -> tuple[tuple[str, int, int], ...]:
    """Return what differs once the host's own list of certificates was made anew. 0.02 ms."""
    found = []
    for name in (*_BUNDLES, *_LOCAL):
        with suppress(OSError):
            status = Path(name).stat()
            found.append((name, status.st_mtime_ns, status.st_size))
    return tuple(found)


def _write(directory: Path, whole: str, extra: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    files = {
        "ca.pem": whole,
        "extra.pem": extra,
        "wgetrc": f"passive_ftp = on\nca_certificate = {_WHOLE}\n",
        "apt.conf": f'Acquire::https::CaInfo "{_WHOLE}";\n',
    }
    for name, text in files.items():
        write_atomic(directory / name, text.encode())
        (directory / name).chmod(0o644)


def _texts(folders: Iterable[str]) -> list[str]:
    return [
        _read(path)
        for folder in folders
        for path in sorted(Path(folder).rglob("*"))
        if path.suffix in {".crt", ".pem"} and path.is_file()
    ]


def _read(path: Path) -> str:
    return path.read_text(encoding="ascii", errors="replace")


def _body(block: str) -> str:
    return "".join(block.split())
