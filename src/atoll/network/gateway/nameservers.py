"""Asks the resolvers that the engine named. Each question has a socket of its own.

A forged answer has to hit a random port, a random id and the random case of the name's letters
(0x20). What comes in the wrong case is asked again by TCP, where nobody can put anything in.
"""

import asyncio
import secrets
from collections.abc import Sequence

import dns.asyncbackend
import dns.asyncquery
import dns.exception
import dns.message
import dns.name
import dns.rdatatype

TIMEOUT = 2.0
"""Seconds one resolver has."""

ROUNDS = 2
"""How often each of them is asked."""

PAYLOAD = 1_232
"""Bytes of an answer by UDP that are never fragmented; larger ones come by TCP."""

_BACKEND = dns.asyncbackend.get_backend("asyncio")
"""Named, because it is found by an import, and a process that is confined imports nothing more."""

_FAILURES = (dns.exception.DNSException, OSError, TimeoutError, EOFError, ValueError)


class Unanswered(Exception):  # noqa: N818  # an outcome
    """No resolver answered."""


class Nameservers:
    """The resolvers of the node.

    Args:
        addresses: as of `Configure`; with a port as ``address#port``, else 53.
    """

    def __init__(self, addresses: Sequence[str] = ()) -> None:
        self._servers = [_split(address) for address in addresses]

    async def ask(
        self, name: dns.name.Name, kind: dns.rdatatype.RdataType
    ) -> dns.message.QueryMessage:
        """Return the answer of the first that gives one.

        Raises:
            Unanswered: there is none.
        """
        for _ in range(ROUNDS):
            for address, port in self._servers:
                try:
                    async with asyncio.timeout(2 * TIMEOUT):
                        return await _ask(name, kind, address, port)
                except _FAILURES:
                    continue
        raise Unanswered


async def _ask(
    name: dns.name.Name, kind: dns.rdatatype.RdataType, address: str, port: int
) -> dns.message.QueryMessage:
    query = dns.message.make_query(
        _mixed(name), kind, use_edns=0, payload=PAYLOAD, id=secrets.randbits(16)
    )
    answer, by_tcp = await dns.asyncquery.udp_with_fallback(
        query,
        address,
        timeout=TIMEOUT,
        port=port,
        ignore_unexpected=True,
        ignore_errors=True,
        backend=_BACKEND,
    )
    if not by_tcp and not _echoes(answer, query):
        answer = await dns.asyncquery.tcp(
            query, address, timeout=TIMEOUT, port=port, backend=_BACKEND
        )
    if not isinstance(answer, dns.message.QueryMessage):
        raise dns.exception.FormError
    return answer


def _echoes(answer: dns.message.Message, query: dns.message.Message) -> bool:
    asked = query.question[0].name.labels
    return bool(answer.question) and answer.question[0].name.labels == asked


def _mixed(name: dns.name.Name) -> dns.name.Name:
    """Return *name* with letters in random case."""
    return dns.name.Name([bytes(map(_flip, label)) for label in name.labels])


def _flip(byte: int) -> int:
    letter = 0x41 <= byte & ~0x20 <= 0x5A
    return byte ^ (secrets.randbits(1) << 5) if letter else byte


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.partition("#")
    return host, int(port or 53)
