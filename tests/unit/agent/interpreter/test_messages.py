import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.agent.interpreter import messages
from atoll.agent.interpreter.messages import Decoder, Message, MessageError, decode, encode


def whole(data: bytes, cuts: list[int]) -> list[Message]:
    found: list[Message] = []
    decoder, at = Decoder(), 0
    for cut in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
        found += decoder.feed(data[at:cut])
        at = cut
    return found


@given(st.lists(st.integers(0, 500)))
def test_messages_survive_every_cut(cuts: list[int]) -> None:
    data = encode(messages.READY, 1, {}) + encode(messages.RESULT, 2, {"a": "b" * 50})
    data += encode(messages.RESULT, 3, {}) + encode(messages.DONE, 4, {"count": 1})
    found = whole(data, cuts)
    assert [m.number for m in found if m.last] == [1, 2, 3, 4]
    assert b"".join(m.body for m in found if m.number == 2) == b'{"a": "' + b"b" * 50 + b'"}'
    assert sum(m.first for m in found if m.number == 2) == 1


def test_an_empty_result_is_one_message() -> None:
    found = list(Decoder().feed(messages.HEADER.pack(messages.RESULT, 1, 0)))
    assert found == [Message(messages.RESULT, 1, b"", 0)]


@pytest.mark.parametrize(
    "head",
    [
        (b"g", 0, 1),
        (messages.RUN, 0, 1),
        (messages.RESULT, 0, messages.MAX_RESULT + 1),
        (messages.DONE, 0, messages.MAX_BODY + 1),
    ],
)
def test_what_is_too_large_or_unknown_is_refused_before_it_comes(
    head: tuple[bytes, int, int],
) -> None:
    with pytest.raises(MessageError):
        list(Decoder().feed(messages.HEADER.pack(*head)))


@pytest.mark.parametrize("body", [b"[1]", b"{", b"[" * 100_000, b"\xff"])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(MessageError):
        decode(Message(messages.DONE, 1, body))
