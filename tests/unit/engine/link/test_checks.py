import json

import msgspec
import pytest

from atoll.engine.link.checks import MAX_ERROR, check
from atoll.wire.frames import Frame, FrameError, Kind


def frame(kind: int, body: object = None) -> Frame:
    return Frame(kind, b"" if body is None else json.dumps(body).encode())


@pytest.mark.parametrize(
    "sent",
    [
        frame(Kind.STARTED, {"pid": 1}), frame(Kind.EXITED, {"exit_code": 0}), frame(Kind.HEARTBEAT),
        frame(Kind.GAP, {"from_offset": 0, "to_offset": 9}), Frame(Kind.STDOUT, bytes(16)),
        frame(Kind.EVENT, {"type": "x"}), Frame(Kind.DATA, b"\0"), frame(Kind.ERROR, {}),
    ],
)  # fmt: skip
def test_what_an_agent_sends_passes(sent: Frame) -> None:
    check(sent)


@pytest.mark.parametrize(
    "sent",
    [
        frame(Kind.HEADER, {}), frame(Kind.CANCEL), frame(99), Frame(Kind.STDERR, b"short"),
        frame(Kind.EXITED, {}), frame(Kind.EXITED, []), frame(Kind.STARTED, {"pid": "x"}),
        Frame(Kind.GAP, b"\xff"), frame(Kind.EVENT, [1]), Frame(Kind.ERROR, bytes(MAX_ERROR + 1)),
    ],
)  # fmt: skip
def test_what_no_agent_sends_is_refused(sent: Frame) -> None:
    with pytest.raises((FrameError, msgspec.MsgspecError)):
        check(sent)
