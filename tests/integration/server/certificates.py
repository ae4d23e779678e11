"""Certificates for tests: one authority, one server on this machine."""

import subprocess
from pathlib import Path
from typing import NamedTuple


class Certificates(NamedTuple):
    authority: Path
    certificate: Path
    key: Path


def made(folder: Path) -> Certificates:
    """Return fresh ones for ``localhost`` and ``127.0.0.1``."""
    ca, ca_key = folder / "ca.pem", folder / "ca.key"
    certificate, key, request = folder / "server.pem", folder / "server.key", folder / "server.csr"
    names = folder / "names"
    names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj")
    _openssl("req", "-x509", *curve, "/CN=test", "-keyout", ca_key, "-out", ca, "-days", "2")
    _openssl("req", "-new", *curve, "/CN=localhost", "-keyout", key, "-out", request)
    _openssl(
        *("x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial"),
        *("-days", "2", "-extfile", names, "-out", certificate),
    )
    return Certificates(ca, certificate, key)


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
