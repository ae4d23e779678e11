import signal
import socket
import ssl
from pathlib import Path

import httpx2
import pytest

from atoll.errors import InvalidConfigError
from atoll.server import tls
from atoll.settings import ServerSettings
from integration.server import certificates
from integration.server.certificates import Certificates
from integration.server.engines import EngineProcess, eventually


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return certificates.made(tmp_path)


def test_an_engine_with_a_certificate_speaks_tls_and_nothing_else(
    made: Certificates, tmp_path: Path
) -> None:
    flags = ("--port", "0", "--tls-certificate", str(made.certificate), "--tls-key", str(made.key))
    engine = EngineProcess(tmp_path / "state", *flags)
    try:
        url = engine.hello["url"]
        assert url.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=made.authority)
        with httpx2.Client(verify=trusting) as client:
            assert client.get(f"{url}/v2/version").json()["engineId"]
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(f"{url}/healthz")
        with pytest.raises(httpx2.TransportError):
            httpx2.get(url.replace("https", "http") + "/healthz")
        with engine.client() as local:
            assert local.get("/v2/version").is_success
    finally:
        engine.end()


def test_a_renewed_certificate_is_used_after_sighup_and_a_broken_one_is_not(
    made: Certificates, tmp_path: Path
) -> None:
    flags = ("--port", "0", "--tls-certificate", str(made.certificate), "--tls-key", str(made.key))
    engine = EngineProcess(tmp_path / "state", *flags)
    address = ("127.0.0.1", int(engine.hello["url"].rpartition(":")[2]))
    try:
        first = ssl.get_server_certificate(address)
        made.certificate.write_text("broken")
        engine.process.send_signal(signal.SIGHUP)
        eventually(lambda: "certificate not renewed" in engine.log)
        assert ssl.get_server_certificate(address) == first
        certificates.made(tmp_path)
        engine.process.send_signal(signal.SIGHUP)
        eventually(lambda: "certificate renewed" in engine.log)
        assert ssl.get_server_certificate(address) == made.certificate.read_text() != first
    finally:
        engine.end()


def test_old_versions_of_tls_are_not_spoken(made: Certificates) -> None:
    found = tls.context_of(ServerSettings(tls_certificate=made.certificate, tls_key=made.key))
    assert found is not None
    assert found.minimum_version is ssl.TLSVersion.TLSv1_2


def test_without_a_certificate_there_is_no_tls() -> None:
    assert tls.context_of(ServerSettings()) is None


@pytest.mark.parametrize("wrong", ["missing", "no pem", "other key", "no certificate"])
def test_files_that_do_not_fit_are_told_at_the_start(
    made: Certificates, tmp_path: Path, wrong: str
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "text").write_text("not a certificate")
    settings = {
        "missing": ServerSettings(tls_certificate=tmp_path / "none.pem"),
        "no pem": ServerSettings(tls_certificate=tmp_path / "text"),
        "other key": ServerSettings(
            tls_certificate=made.certificate, tls_key=certificates.made(other).key
        ),
        "no certificate": ServerSettings(tls_key=made.key),
    }
    with pytest.raises(InvalidConfigError):
        tls.context_of(settings[wrong])


def test_a_handshake_that_does_not_end_is_cut(
    made: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ("--port", "0", "--tls-certificate", str(made.certificate), "--tls-key", str(made.key))
    engine = EngineProcess(tmp_path / "state", *flags)
    try:
        port = int(engine.hello["url"].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=30) as end:
            end.sendall(b"\x16\x03\x01\x02\x00\x01")
            assert end.recv(1) == b""
    finally:
        engine.end()
