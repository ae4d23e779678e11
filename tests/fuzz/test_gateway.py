"""What a sandbox sends to its gateway before anything is decided: ClientHellos and DNS messages."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any, cast

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rdatatype
from hypothesis import given
from hypothesis import strategies as st

from atoll.host.budget import Budget
from atoll.network.gateway import clienthello, resolver, sniff
from atoll.network.gateway.clienthello import Malformed
from atoll.network.gateway.nameservers import Nameservers, Unanswered
from atoll.network.gateway.protocol import Put
from atoll.network.gateway.resolver import Resolver
from atoll.network.gateway.sandbox import Sandbox
from atoll.network.policy import Handler, SandboxPolicy
from fuzz.examples import examples


def _vector(size: int, body: bytes) -> bytes:
    return len(body).to_bytes(size, "big") + body


_NAME_ENTRY = st.builds(
    lambda kind, name: kind + _vector(2, name),
    st.sampled_from([b"\0", b"\0", b"\1"]),
    st.sampled_from([b"a.test", b"", b"\xff", b"a\0b"]) | st.binary(max_size=8),
)
_NAMED = _NAME_ENTRY.map(lambda name: b"\0\0" + _vector(2, _vector(2, name)))
_EXTENSION = _NAMED | st.builds(
    lambda kind, body: kind.to_bytes(2, "big") + _vector(2, body),
    st.sampled_from([0, 0x10, 0xFE0D, 43]),
    st.lists(_NAME_ENTRY, max_size=2).map(lambda names: _vector(2, b"".join(names)))
    | st.lists(st.binary(max_size=4), max_size=2).map(
        lambda names: _vector(2, b"".join(_vector(1, name) for name in names))
    )
    | st.binary(max_size=8),
)


def _hello(extensions: list[bytes], step: int, more: bytes) -> bytes:
    body = b"\x03\x03" + bytes(32) + b"\0" + b"\0\x02\x13\x01" + b"\x01\0"
    message = b"\x01" + _vector(3, body + _vector(2, b"".join(extensions))) + more
    parts = [message[at : at + step] for at in range(0, len(message), step)]
    return b"".join(b"\x16\x03\x01" + _vector(2, part) for part in parts)


def _spoiled(data: bytes, at: int, noise: bytes, end: int) -> bytes:
    """Return *data* with *noise* over a part of it, cut at *end*; 0: not cut."""
    at %= len(data) + 1
    whole = data[:at] + noise + data[at + len(noise) :]
    return whole[: end % (len(whole) + 1)] if end else whole


def _with_noise(data: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    ends = st.just(0) | st.integers(1, 5_000)
    return data | st.builds(_spoiled, data, st.integers(0, 5_000), st.binary(max_size=3), ends)


_HELLO = _with_noise(
    st.builds(
        _hello, st.lists(_EXTENSION, max_size=3), st.integers(1, 200), st.sampled_from([b"", b"x"])
    )
)


def _read(data: bytes) -> clienthello.ClientHello | None:
    """Return what is read of *data*; None: not whole, or refused."""
    try:
        return clienthello.read(data)
    except Malformed:
        return None


@examples(300)
@given(_HELLO | st.binary(max_size=60))
def test_a_hello_is_read_in_one_way_or_refused(data: bytes) -> None:
    found = _read(data)
    sniff.kind(data, web=False)
    if found is None:
        return
    assert found.server_name.isascii()
    assert found.length <= len(data)
    assert _read(data[: found.length]) == found
    assert _read(data + b"more") == found
    assert clienthello.read(data[: found.length - 1]) is None


@examples(30)
@given(
    st.integers(1, 400),
    st.integers(0, 0xFFFFFF) | st.integers(clienthello.MAX - 200, clienthello.MAX - 4),
)
def test_a_hello_that_never_ends_is_refused_at_the_bound(step: int, length: int) -> None:
    message = b"\x01" + length.to_bytes(3, "big") + bytes(clienthello.MAX)
    parts = [message[at : at + step] for at in range(0, len(message), step)]
    data = b"".join(b"\x16\x03\x01" + _vector(2, part) for part in parts)[: clienthello.MAX]
    try:
        found = clienthello.read(data)
    except Malformed:
        return
    assert found is not None


_LABELS = st.sampled_from(
    ["a.test.", "evil.test.", "handled.test.", "b.example.", ".", "a" * 63 + "."]
)
_KINDS = st.sampled_from(["A", "AAAA", "CNAME", "TXT", "HTTPS", "ANY", "MX", "NS", "TYPE65000"])


def _query(name: str, kind: str, edns: int, flags: int, questions: int) -> bytes:
    query = dns.message.make_query(name, kind, use_edns=edns if edns >= 0 else None)
    query.flags = cast("dns.flags.Flag", flags)
    query.question *= questions
    return query.to_wire()


def _reply(data: bytes) -> bytes:
    """Return an answer in which *data* is some records."""
    reply = dns.message.make_response(dns.message.make_query("a.test.", "A"))
    head = bytearray(reply.to_wire())
    head[7] = 2
    return bytes(head) + data


_QUERY = _with_noise(
    st.builds(
        _query, _LABELS, _KINDS, st.integers(-1, 3),
        st.sampled_from([0x0100, 0x0000, 0x0200, 0x2900, 0x7900]), st.integers(0, 2),
    )
)  # fmt: skip
_RECORD = st.builds(
    lambda owner, kind, ttl, body: owner + kind + b"\0\1" + ttl + _vector(2, body),
    st.sampled_from([b"\xc0\x0c", b"\xc0\xff", b"\1b\0", b"\0", b"\xc0\x0d", b"\x40a"]),
    st.sampled_from([b"\0\1", b"\0\5", b"\0\x1c", b"\0\x10", b"\0\x29"]),
    st.binary(min_size=4, max_size=4),
    st.sampled_from(
        [bytes(4), b"\x0a\0\0\1", b"\x5d\xb8\xd8\x22", b"\xc0\x0c", b"\1b\0", bytes(16)]
    )
    | st.binary(max_size=6),
)
_ANSWER = st.lists(_RECORD, max_size=3).map(lambda records: _reply(b"".join(records)))


class _Forged:
    """A resolver outside whose answer is *data*, for whatever question."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def ask(self, name: dns.name.Name, kind: dns.rdatatype.RdataType) -> Any:
        del name, kind
        try:
            found = dns.message.from_wire(self._data)
        except (dns.exception.DNSException, ValueError, IndexError) as error:
            raise Unanswered from error  # as `Nameservers` does
        if not isinstance(found, dns.message.QueryMessage):
            raise Unanswered
        return found


@examples(200)
@given(_QUERY | st.binary(max_size=60), _ANSWER, st.none() | st.integers(512, 1_232))
def test_every_question_has_a_small_answer_or_none(
    data: bytes, outside: bytes, limit: int | None
) -> None:
    policy = SandboxPolicy(
        key="default/box", host_ref="box", addresses=("127.0.1.1",), allowed=("*.test",),
        denied=("evil.test",), class_by_host={"handled.test": Handler("outbound_by_host", "handled")},
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        sandbox = Sandbox(
            Put(policy=policy, log="box"), Path(folder), Budget(0), Budget(0), lambda _: None
        )
        asked = Resolver(cast("Nameservers", _Forged(outside))).answer(sandbox, data, limit)
        answer = asyncio.run(asked)
        sandbox.close()
    assert sandbox.queries == 0
    if answer is None:
        return
    assert answer[:2] == data[:2]
    assert answer[2] & 0x80
    assert len(answer) <= (limit or resolver.MAX_QUERY)
    dns.message.from_wire(answer)
