import base64
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import pytest

from atoll.errors import InvalidMountConfigError
from atoll.storage.buckets import azure, options
from atoll.storage.buckets.options import Credentials, Source

KEY = Credentials(access_key_id="acct", secret_access_key=base64.b64encode(b"k" * 32).decode())
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def source(endpoint: str = "http://127.0.0.1:10000", **fields: object) -> Source:
    given = {"bucket": "box", "provider": "azure", "prefix": None, "read_only": False, "given": ()}
    return options.source(endpoint=endpoint, **{**given, **fields})  # type: ignore[arg-type]


def test_a_signature_names_the_container_and_what_may_be_done() -> None:
    """The client is not given the account's key; a read-only mount is none that could write."""
    writing = parse_qs(urlsplit(azure.url(source(), KEY, NOW)).query)
    assert (writing["sr"], writing["sp"], writing["se"][0][:4]) == (["c"], ["racwdl"], "2039")
    reading = parse_qs(urlsplit(azure.url(source(read_only=True), KEY, NOW)).query)
    assert reading["sp"] == ["rl"]
    assert reading["sig"] != writing["sig"]
    assert KEY.secret_access_key not in azure.url(source(), KEY, NOW)


def test_a_signature_is_what_servers_compute() -> None:
    """Seen to be taken by Azurite 3.35, which computes it by itself."""
    signed = parse_qs(urlsplit(azure.url(source(), KEY, NOW)).query)["sig"]
    assert signed == ["bNLdPMEcKc06BCRbATczKn6u48IFN+G0YTKg8ONeV2s="]


def test_an_account_is_a_host_name_or_the_beginning_of_a_path() -> None:
    at_home = azure.url(source(), KEY, NOW)
    assert at_home.startswith("http://127.0.0.1:10000/acct/box?")
    cloud = azure.url(source(str(azure.endpoint(None, "acct"))), KEY, NOW)
    assert cloud.startswith("https://acct.blob.core.windows.net/box?")
    assert str(azure.endpoint("https://acct.blob.core.chinacloudapi.cn", "acct")).endswith(".cn")
    for other in ("https://evil.blob.core.windows.net", "https://acctevil.example.com"):
        with pytest.raises(InvalidMountConfigError):
            azure.endpoint(other, "acct")


def test_the_container_is_asked_for_one_name() -> None:
    request = azure.listing(source(prefix="a b/c&d"), KEY, NOW).decode()
    assert request.startswith("GET /acct/box?sv=")
    assert (
        "&restype=container&comp=list&maxresults=1&prefix=a%20b%2Fc%26d%2F HTTP/1.1\r\n" in request
    )
    assert "Host: 127.0.0.1:10000\r\n" in request
