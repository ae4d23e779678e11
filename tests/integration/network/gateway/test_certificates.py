import ssl
from pathlib import Path

import pytest

from atoll.network.gateway import certificates
from atoll.network.gateway.certificates import Certificates, new_authority


def accepted(server: ssl.SSLContext, trusted: str, name: str) -> bool:
    """Tell whether a client that trusts *trusted* takes the server's certificate for *name*."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cadata=trusted).wrap_bio(
        to_client, to_server, server_hostname=name
    )
    serving = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, serving):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return True


@pytest.mark.parametrize("name", ["a.test", "127.0.0.1", "2001:db8::1", "a" * 60 + ".b.c.d.test"])
def test_a_sandbox_trusts_its_own_authority_for_the_name_alone(tmp_path: Path, name: str) -> None:
    own, others = new_authority("own"), new_authority("others")
    context = Certificates(tmp_path).context(own, name)
    assert accepted(context, own.certificate, name)
    assert not accepted(context, own.certificate, "b.test")
    assert not accepted(context, others.certificate, name)


def test_no_key_stays_on_disk(tmp_path: Path) -> None:
    Certificates(tmp_path).context(new_authority("own"), "a.test")
    assert list(tmp_path.iterdir()) == []


def test_certificates_are_kept_within_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "MAX_CONTEXTS", 2)
    made, own = Certificates(tmp_path), new_authority("own")
    first = made.context(own, "a.test")
    assert made.context(own, "a.test") is first
    for name in ("b.test", "c.test"):
        made.context(own, name)
    assert made.context(own, "a.test") is not first
