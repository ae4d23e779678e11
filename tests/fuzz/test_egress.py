"""What sandboxes send to the gateway's readers ends in an answer or a refusal, never in a surprise."""

import os
import struct

import dns.exception
import dns.message
from hypothesis import example, given, settings
from hypothesis import strategies as st

from atoll.network.gateway import clienthello, resolver, sniff
from atoll.network.gateway.clienthello import ClientHello, Malformed
from atoll.network.gateway.handshake import Follower
from unit.network.gateway.test_clienthello import hello, made, named

EXAMPLES = int(os.environ.get("ATOLL_FUZZ_EXAMPLES", "300"))

REAL = hello("www.example.com", ["h2", "http/1.1"])
QUERY = dns.message.make_query("www.example.com", "A", use_edns=0).to_wire()


def mutated(data: bytes) -> st.SearchStrategy[bytes]:
    """Return strategies of *data* with some bytes replaced, left out or put in."""
    edits = st.lists(
        st.tuples(st.integers(0, len(data)), st.integers(0, 3), st.binary(max_size=4)), max_size=6
    )
    return edits.map(lambda found: _edited(data, found))


def _edited(data: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    for at, gone, new in edits:
        data = data[:at] + new + data[at + gone :]
    return data


def read(data: bytes) -> ClientHello | None:
    try:
        return clienthello.read(data)
    except Malformed:
        return None


@given(st.one_of(st.binary(max_size=200), mutated(REAL), mutated(made(named(b"a.test"), record=9))))
@settings(max_examples=EXAMPLES, deadline=None)
@example(made(named(b"a.test", b"b.test")))
def test_a_hello_is_understood_or_refused_and_never_differently_when_cut(data: bytes) -> None:
    whole = read(data)
    if whole is None:
        return
    assert whole.length <= len(data)
    assert whole.server_name.isascii()
    assert read(data[: whole.length]) == whole
    assert read(data[: whole.length - 1]) is None


@given(mutated(REAL), st.integers(1, 40))
@settings(max_examples=EXAMPLES, deadline=None)
def test_what_follows_a_hello_passes_whole_or_not_at_all(more: bytes, step: int) -> None:
    first = clienthello.read(REAL)
    assert first is not None
    follower, passed = Follower(first), b""
    sent = REAL + more
    try:
        for at in range(0, len(sent), step):
            passed += follower.up(sent[at : at + step])
    except Malformed:
        pass
    assert sent.startswith(passed)
    assert len(passed) >= min(len(REAL), (len(passed) // step) * step)


@given(st.one_of(st.binary(max_size=64), mutated(QUERY)))
@settings(max_examples=EXAMPLES, deadline=None)
@example(b"ab\1\0" + struct.pack(">4H", 0xFFFF, 0xFFFF, 0xFFFF, 0xFFFF))
def test_a_question_is_one_or_is_answered_as_none(data: bytes) -> None:
    found = resolver.parsed(data)
    if isinstance(found, bytes):
        assert found[:2] == data[:2]
        assert dns.message.from_wire(found).rcode() != 0
    elif found is not None:
        assert len(data) >= 12


@given(st.binary(max_size=80), st.booleans())
@settings(max_examples=EXAMPLES, deadline=None)
def test_what_is_known_of_first_bytes_stays_true_when_more_come(data: bytes, web: bool) -> None:
    known = None
    for end in range(1, len(data) + 1):
        found = sniff.kind(data[:end], web=web)
        if known is not None and known is not sniff.Kind.HTTP:
            assert found is known
        known = found
