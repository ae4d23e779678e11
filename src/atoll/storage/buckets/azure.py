"""Azure Blob Storage: a container of an account, opened by a signature for that container alone.

The account's key could do anything to the account, so no client is given it: a signed URL names one
container and what may be done there, and a read-only mount's cannot write. Pure.
"""

import base64
import binascii
import hmac
import re
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final
from urllib.parse import quote, urlencode

from atoll.storage.buckets.options import Credentials, Origin, Source, origin, refused

VERSION: Final = "2020-10-02"
"""Of the protocol: known to the service, and to emulators, for years."""

LIFETIME: Final = timedelta(days=3_650)
"""Of a signature. It is made anew at every start of a client, and goes with the account's key."""

_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")
_CONTAINER = re.compile(r"[a-z0-9](-?[a-z0-9]){2,62}")


def endpoint(given: str | None, account: str) -> Origin:
    """Return where an account is: as given, or where the public cloud has it.

    Raises:
        InvalidMountConfigError: the endpoint is no account's.
    """
    if given is None:
        return Origin("https", f"{account}.blob.core.windows.net", 443)
    found = origin(given)
    if not (found.host.startswith(f"{account}.") or _is_address(found.host)):
        raise refused("endpoint", f"an endpoint of Azure is an address or begins {account}.")
    return found


def check(source: Source, credentials: Credentials) -> None:
    """Refuse what is no container or no key; raise as `endpoint`."""
    if not _ACCOUNT.fullmatch(credentials.access_key_id):
        raise refused("credentials", "access_key_id is the name of the storage account")
    if not _CONTAINER.fullmatch(source.bucket):
        raise refused("bucket", "a container's name has small letters, digits and single hyphens")
    try:
        base64.b64decode(credentials.secret_access_key, validate=True)
    except (binascii.Error, ValueError) as error:
        raise refused("credentials", "secret_access_key is a key of the account") from error


def url(source: Source, credentials: Credentials, now: datetime) -> str:
    """Return the container's URL with its signature, which is a secret."""
    account = credentials.access_key_id
    place = f"/{account}/{source.bucket}"
    until = (now + LIFETIME).strftime("%Y-%m-%dT%H:%M:%SZ")
    may = "rl" if source.read_only else "racwdl"
    # Start, identifier, address and protocol are left open; the rest are headers of answers.
    text = [may, "", until, f"/blob{place}", "", "", "", VERSION, "c", *[""] * 6]
    key = base64.b64decode(credentials.secret_access_key)
    signature = base64.b64encode(hmac.digest(key, "\n".join(text).encode(), "sha256"))
    query = {"sv": VERSION, "se": until, "sr": "c", "sp": may, "sig": signature.decode()}
    path = place if _is_address(source.endpoint.host) else f"/{source.bucket}"
    return f"{source.endpoint}{path}?{urlencode(query)}"


def listing(source: Source, credentials: Credentials, now: datetime) -> bytes:
    """Return the bytes of a request that lists at most one blob."""
    target = url(source, credentials, now).removeprefix(str(source.endpoint))
    prefix = quote(source.prefix and source.prefix + "/", safe="")
    host = str(source.endpoint).partition("://")[2]
    return (
        f"GET {target}&restype=container&comp=list&maxresults=1&prefix={prefix} HTTP/1.1\r\n"
        f"Host: {host}\r\nConnection: close\r\n\r\n"
    ).encode()


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
