"""What the store keeps of an exposed port, and the rules of exposing one. Pure.

A token names one port of one sandbox. It stays the same through sleeps; it forwards only in the
start of the sandbox (`generation`) in which the port was exposed last.
"""

import hashlib
import re
import secrets
import string
from collections.abc import Sequence
from datetime import datetime, timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address

import msgspec

from atoll.errors import (
    CustomDomainRequiredError,
    InvalidPortError,
    InvalidPortNumberError,
    InvalidSandboxIdError,
    PortAlreadyExposedError,
    ValidationFailedError,
)
from atoll.wire import ids, preview
from atoll.wire.ports import ExposedPort, ExposePort

RESERVED = 3000
"""The port of the container server of 0.12; refused as it was there."""

AUTH = frozenset({"bearer", "cookie"})
MAX_LINKS = 100
"""Unused one-time links of one preview; the oldest give way."""

_TOKEN = re.compile(r"[a-z0-9_]{1,16}")
_HOSTNAME = re.compile(
    r"(?=.{1,253}(?::|$))(?:\[[0-9a-f:.]+\]|[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(?::\d{1,5})?"
)
_ALPHABET = string.ascii_lowercase + string.digits
_LENGTH = 16  # 82 bits of the alphabet


class Exposure(msgspec.Struct, frozen=True, kw_only=True):
    """One exposed port. `links`: hash of an unused one-time link → unix time of its end."""

    namespace: str
    sandbox: str
    port: int
    layer_id: str
    generation: int
    token: str
    hostname: str
    secret: str
    name: str | None = None
    public: bool = True
    auth: str | None = None
    expires_at: datetime | None = None
    links: dict[str, float] = {}

    @property
    def key(self) -> tuple[str, str, int]:
        """Namespace, sandbox and port."""
        return self.namespace, self.sandbox, self.port

    def over(self, now: datetime) -> bool:
        """Whether its time is over."""
        return self.expires_at is not None and now >= self.expires_at


def check_number(port: object) -> int:
    """Return *port*, a number or the text of one, if there is such a port.

    Raises:
        InvalidPortNumberError: there is none.
    """
    if isinstance(port, str) and port.isascii() and port.isdecimal():
        port = int(port[:6])
    if not isinstance(port, int) or not 1 <= port <= 0xFFFF:
        raise InvalidPortNumberError(
            f"{str(port)[:20]!r} is not a port", suggestion="use a number from 1024 to 65535"
        )
    return port


def check_port(port: object) -> int:
    """Return *port* if it may be exposed.

    Raises:
        InvalidPortNumberError: there is no such port.
        InvalidPortError: it is privileged or reserved.
    """
    number = check_number(port)
    if number < 1024 or number == RESERVED:
        raise InvalidPortError(
            f"port {number} cannot be exposed",
            context={"port": number},
            suggestion=f"use one from 1024 to 65535, but not {RESERVED}",
        )
    return number


def check_id(sandbox: str) -> None:
    """Refuse ids that no host name can hold.

    Raises:
        InvalidSandboxIdError: upper case, other letters, or too long.
    """
    if not ids.is_previewable(sandbox):
        raise InvalidSandboxIdError(
            f"sandbox {sandbox!r} cannot be previewed: its id is not part of a host name",
            context={"sandbox": sandbox},
            suggestion=f"use at most {preview.MAX_ID} characters of a-z, 0-9 and '-'"
            " (normalize_id=True makes lower case)",
        )


def check_hostname(hostname: str) -> str:
    """Return *hostname* (with its port) in lower case; this machine's address is ``localhost``.

    An address has no names below it, and a Worker that hands on the host of a request has one.

    Raises:
        CustomDomainRequiredError: a domain without wildcard names, or another machine's address.
        ValidationFailedError: no host name.
    """
    found = hostname.lower()
    if not _HOSTNAME.fullmatch(found):
        raise ValidationFailedError(
            f"{hostname[:80]!r} is not a host name",
            context={"field": "hostname"},
            suggestion="write the name that previews are below, like example.com or localhost:8787",
        )
    bare = _bare(found)
    address = _address(bare)
    if address and is_local(bare):
        return "localhost" + found.removeprefix(bare)
    if address or bare == "workers.dev" or bare.endswith(".workers.dev"):
        raise CustomDomainRequiredError(
            f"{bare} has no wildcard names",
            context={"hostname": hostname},
            suggestion="use a domain of your own with a wildcard record",
        )
    return found


def _bare(hostname: str) -> str:
    return re.sub(r":\d+$", "", hostname)


def check_access(wanted: ExposePort) -> None:
    """Refuse a malformed token or kind of access.

    Raises:
        ValidationFailedError: names the field.
    """
    if wanted.token is not None and not _TOKEN.fullmatch(wanted.token):
        raise ValidationFailedError(
            "the token is malformed",
            context={"field": "token"},
            suggestion="use 1 to 16 characters of a-z, 0-9 and '_'",
        )
    if wanted.auth is not None and wanted.auth not in AUTH:
        raise ValidationFailedError(
            f"{wanted.auth[:40]!r} is no kind of access",
            context={"field": "auth"},
            suggestion='use "bearer" or "cookie"',
        )
    if wanted.name is not None and (len(wanted.name) > 128 or not wanted.name.isprintable()):
        raise ValidationFailedError("the name is too long", context={"field": "name"})


def exposed(
    old: Exposure | None,
    wanted: ExposePort,
    *,
    owner: tuple[str, str],
    layer_id: str,
    generation: int,
    hostname: str,
    now: datetime,
) -> Exposure:
    """Return the exposure of a port: *old* made active again, as far as there is one.

    Raises:
        PortAlreadyExposedError: it forwards now, with another token or name.
    """
    active = old is not None and old.generation == generation and not old.over(now)
    if old is not None and active:
        _check_same(old, wanted)
    keep = old if old is not None and wanted.token in {None, old.token} else None
    return Exposure(
        namespace=owner[0],
        sandbox=owner[1],
        port=wanted.port,
        layer_id=layer_id,
        generation=generation,
        token=wanted.token or (keep.token if keep else new_token()),
        hostname=hostname,
        secret=keep.secret if keep else secrets.token_urlsafe(32),
        name=wanted.name if wanted.name is not None else (old.name if old else None),
        public=wanted.public and wanted.auth is None,
        auth=wanted.auth,
        expires_at=None
        if wanted.expires_ms is None
        else now + timedelta(milliseconds=wanted.expires_ms),
        links=keep.links if keep else {},
    )


def _check_same(old: Exposure, wanted: ExposePort) -> None:
    for field, given, known in (
        ("token", wanted.token, old.token),
        ("name", wanted.name, old.name),
    ):
        if given is not None and known is not None and given != known:
            raise PortAlreadyExposedError(
                f"port {old.port} is exposed with another {field}",
                context={"port": old.port, "field": field},
                suggestion="unexpose the port first, or leave the token and name out",
            )


def taken(port: int) -> PortAlreadyExposedError:
    """Return the error for a token that another port has."""
    return PortAlreadyExposedError(
        "the token is in use for another port",
        context={"port": port, "field": "token"},
        suggestion="choose another token, or leave it out",
    )


def new_token() -> str:
    """Return a token that cannot be guessed."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))


def url(exposure: Exposure, hostname: str | None = None) -> str:
    """Return the preview's URL, below *hostname* or the one it was exposed with."""
    host = hostname or exposure.hostname
    scheme = "http" if is_local(host) else "https"
    return f"{scheme}://{exposure.port}-{exposure.sandbox}-{exposure.token}.{host}"


def default_hostname(domains: Sequence[str], port: int | None) -> str:
    """Return the name that addresses are below when none is given.

    Args:
        domains: those that the engine serves.
        port: of its listener; a domain of one's own is reached by way of the usual port.
    """
    first = domains[0].lower() if domains else "localhost"
    return f"{first}:{port}" if port and is_local(first) else first


def is_local(hostname: str) -> bool:
    """Whether *hostname* is this machine's: there is no TLS then."""
    bare = _bare(hostname)
    if bare == "localhost" or bare.endswith(".localhost"):
        return True
    address = _address(bare)
    return address is not None and (address.is_loopback or address.is_unspecified)


def _address(bare: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(bare.strip("[]"))
    except ValueError:
        return None


def told(exposure: Exposure, hostname: str | None = None, *, secret: bool = False) -> ExposedPort:
    """Return what callers are told of *exposure*."""
    return ExposedPort(
        url=url(exposure, hostname),
        port=exposure.port,
        name=exposure.name,
        public=exposure.public,
        auth=exposure.auth,
        expires_at=exposure.expires_at,
        secret=exposure.secret if secret and not exposure.public else None,
    )


def hashed(key: str) -> str:
    """Return the form in which the key of a link is kept."""
    return hashlib.sha256(key.encode()).hexdigest()


def with_link(exposure: Exposure, key: str, *, end: float, now: float) -> Exposure:
    """Return *exposure* with one more link; those that are over, and too many, are dropped."""
    links = {known: until for known, until in exposure.links.items() if until > now}
    links[hashed(key)] = end
    kept = dict(list(links.items())[-MAX_LINKS:])
    return msgspec.structs.replace(exposure, links=kept)


def without_link(exposure: Exposure, key: str, *, now: float) -> Exposure | None:
    """Return *exposure* after its link was used; None: there is no such link, or not any more."""
    digest = hashed(key)
    if exposure.links.get(digest, 0.0) <= now:
        return None
    kept = {known: until for known, until in exposure.links.items() if known != digest}
    return msgspec.structs.replace(exposure, links=kept)
