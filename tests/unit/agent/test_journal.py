import json
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from atoll.agent.journal import FRAME_CHARGE, Journal, resume
from atoll.wire import frames
from atoll.wire.frames import Decoder, Frame, Kind


def decoded(found: Iterable[bytes]) -> list[Frame]:
    return list(Decoder().feed(b"".join(found)))


def body(frame: Frame) -> dict[str, object]:
    found: dict[str, object] = json.loads(frame.payload)
    return found


@given(st.lists(st.binary(min_size=1, max_size=9), max_size=12), st.integers(0, 120))
def test_who_has_a_part_gets_exactly_the_rest(chunks: list[bytes], have: int) -> None:
    journal = Journal()
    journal.started(7)
    for chunk in chunks:
        journal.output(Kind.STDOUT, chunk)
    whole = b"".join(chunks)
    have = min(have, len(whole))
    found = decoded(resume(journal.kept(), have))
    assert found[0].kind == Kind.STARTED
    assert b"".join(frames.decode_output(one.payload).data for one in found[1:]) == whole[have:]


@given(st.lists(st.integers(1, 400), min_size=1, max_size=40), st.integers(0, 3000))
def test_what_is_no_longer_kept_is_a_gap_of_the_right_size(sizes: list[int], have: int) -> None:
    journal = Journal(window=1500)
    whole = b""
    for number, size in enumerate(sizes):
        data = bytes([number]) * size
        whole += data
        journal.output(Kind.STDERR, data)
    have = min(have, len(whole))
    at = have
    for frame in decoded(resume(journal.kept(), have)):
        if frame.kind == Kind.GAP:
            assert body(frame)["from_offset"] == at
            at = int(str(body(frame)["to_offset"]))
        else:
            output = frames.decode_output(frame.payload)
            assert (output.offset, output.data) == (at, whole[at : at + len(output.data)])
            at += len(output.data)
    assert at == len(whole)


def test_small_frames_are_charged_for_their_cost() -> None:
    journal = Journal(window=10_000)
    for _ in range(5_000):
        journal.output(Kind.STDOUT, b"x")
    assert len(list(journal.kept())) <= 10_000 // FRAME_CHARGE
    assert journal.offset == 5_000


def test_the_last_frame_is_kept_however_large() -> None:
    journal = Journal(window=10)
    journal.output(Kind.STDOUT, b"y" * 100)
    assert len(list(journal.kept())) == 1


def test_an_exit_whose_output_is_forgotten_comes_with_a_gap() -> None:
    journal = Journal()
    journal.output(Kind.STDOUT, b"forgotten")
    gap, last = decoded(resume([journal.exited({"exit_code": 0})], 4))
    assert (gap.kind, body(gap)["from_offset"], body(gap)["to_offset"]) == (Kind.GAP, 4, 9)
    assert (last.kind, body(last)["exit_code"], body(last)["offset"]) == (Kind.EXITED, 0, 9)


def test_every_event_has_the_next_number() -> None:
    journal = Journal()
    found = decoded(
        [
            journal.started(1),
            journal.output(Kind.STDOUT, b"a"),
            journal.exited({}),
        ]
    )
    assert body(found[0])["seq"] == 0
    assert frames.decode_output(found[1].payload).seq == 1
    assert body(found[2])["seq"] == 2
