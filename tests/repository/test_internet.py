"""The internet of the tests works, so that a sandbox which reaches nothing means something."""

import json
import socket
import ssl
import urllib.request
from collections.abc import Iterator

import pytest

from e2e.network import internet as net
from e2e.network import names

pytestmark = pytest.mark.e2e


@pytest.fixture
def web() -> Iterator[net.Internet]:
    with net.temporary() as made:
        yield made


def test_the_host_reaches_everything(web: net.Internet) -> None:
    for address in (net.PUBLIC, net.METADATA, f"[{net.PUBLIC6}]", f"[{net.METADATA6}]"):
        with urllib.request.urlopen(f"http://{address}/x?y", timeout=5) as answer:
            assert json.load(answer)["path"] == "/x?y"
    assert web.requests[0].peer == net.UPLINK
    assert web.requests[2].peer == net.UPLINK6
    with socket.create_connection((net.PUBLIC, net.ECHO), timeout=5) as echo:
        echo.sendall(b"abc")
        assert echo.recv(10) == b"abc"


def test_https_shows_the_name_that_was_asked_for(web: net.Internet) -> None:
    context = ssl.create_default_context(cafile=str(web.authority.path))
    with (
        socket.create_connection((net.PUBLIC, net.HTTPS), timeout=5) as raw,
        context.wrap_socket(raw, server_hostname="allowed.test") as tls,
    ):
        tls.sendall(b"GET / HTTP/1.1\r\nHost: allowed.test\r\nConnection: close\r\n\r\n")
        assert b'"sni": "allowed.test"' in tls.makefile("rb").read()


def test_the_resolver_answers_and_remembers(web: net.Internet) -> None:
    for tcp in (False, True):
        found = names.resolve(net.RESOLVER, "BOTH.test", names.AAAA, tcp=tcp)
        assert found is not None
        assert names.addresses(found) == [net.PUBLIC6]
    missing = names.resolve("8.8.8.8", "nowhere.test")
    assert missing is not None
    assert (names.code(missing), names.addresses(missing)) == (3, [])
    web.names.names["alias.test"] = ["allowed.test"]
    alias = names.resolve(net.RESOLVER, "alias.test")
    assert alias is not None
    assert names.addresses(alias) == [net.PUBLIC]
    assert web.names.asked("nowhere.test")
