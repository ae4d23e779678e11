"""Puts secrets into a request on its way out, and finds placeholders that are going astray. Pure.

A placeholder counts in header values, in the query and in the user and password of Basic
authorization. Elsewhere it is text like any other and stays what it is: worth nothing. Names and
paths of a request are looked at too, so that a placeholder sent to a host which is not the
secret's is noticed wherever in the head it stands.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

from atoll.network import hosts
from atoll.network.policy import Secret
from atoll.wire.http1 import Fields

REDACTED = b"[secret]"

_FORBIDDEN = re.compile(rb"[\r\n\0]")


class Misplaced(Exception):  # noqa: N818  # a decision about the request
    """A placeholder is where its secret may not go. The message names the secret only."""


class Filled(NamedTuple):
    """A request with its secrets. `used`: their names."""

    target: bytes
    fields: Fields
    used: tuple[str, ...]


def fill(
    target: bytes, fields: Fields, host: str, secrets: Iterable[Secret], *, encrypted: bool
) -> Filled:
    """Return the request for *host* with its secrets put in.

    Args:
        target: of the request.
        fields: of its head.
        host: the proved name it is for; empty: none holds.
        secrets: the sandbox's.
        encrypted: it goes out in TLS, to a server that showed a certificate for *host*.

    Raises:
        Misplaced: the secret is not this host's, or would go out unencrypted.
    """
    used = []
    for secret in secrets:
        placeholder = secret.placeholder.encode()
        if not _mentioned(placeholder, target, fields):
            continue
        if not host or not any(hosts.matches(pattern, host) for pattern in secret.hosts):
            raise Misplaced(f"secret {secret.name} is not for this host")
        if not secret.value:
            raise Misplaced(f"secret {secret.name} is not set for this host")
        if not encrypted:
            raise Misplaced(f"secret {secret.name} goes out in HTTPS only")
        value = secret.value.encode()
        if _FORBIDDEN.search(value):
            raise Misplaced(f"secret {secret.name} has characters that no header may have")
        target = _in_target(target, placeholder, value)
        fields = [(name, _in_value(name, text, placeholder, value)) for name, text in fields]
        used.append(secret.name)
    return Filled(target, fields, tuple(used))


def redact(text: str, secrets: Sequence[Secret]) -> str:
    """Return *text* without values or placeholders of secrets."""
    for secret in secrets:
        for word in (secret.value, secret.placeholder):
            if word:
                text = text.replace(word, REDACTED.decode())
    return text


def _mentioned(placeholder: bytes, target: bytes, fields: Fields) -> bool:
    return placeholder in unquote_to_bytes(target) or any(
        placeholder in name or placeholder in value or placeholder in (_basic(name, value) or b"")
        for name, value in fields
    )


def _in_target(target: bytes, placeholder: bytes, value: bytes) -> bytes:
    path, mark, query = target.partition(b"?")
    encoded = quote_from_bytes(value, safe="").encode()
    return path + mark + query.replace(placeholder, encoded)


def _in_value(name: bytes, text: bytes, placeholder: bytes, value: bytes) -> bytes:
    pair = _basic(name, text)
    if pair is not None and placeholder in pair:
        return b"Basic " + base64.b64encode(pair.replace(placeholder, value))
    return text.replace(placeholder, value)


def _basic(name: bytes, value: bytes) -> bytes | None:
    """Return user and password of Basic authorization, or None."""
    scheme, _, encoded = value.strip().partition(b" ")
    if name.lower() not in {b"authorization", b"proxy-authorization"} or scheme.lower() != b"basic":
        return None
    try:
        return base64.b64decode(encoded.strip(), validate=True)
    except binascii.Error:
        return None
