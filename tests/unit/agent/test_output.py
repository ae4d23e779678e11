import os

from atoll.agent.output import Output
from atoll.wire.frames import Kind


class Seen:
    def __init__(self) -> None:
        self.emitted: list[tuple[int, bytes]] = []
        self.gaps: list[tuple[int, int, str]] = []
        self.output = Output(
            lambda kind, data: self.emitted.append((kind, data)),
            lambda start, end, reason: self.gaps.append((start, end, reason)),
        )


def test_each_stream_has_its_own_limit_and_true_counts() -> None:
    seen = Seen()
    seen.output.limit = 5
    for kind, data in [(Kind.STDOUT, b"abc"), (Kind.STDERR, b"x"), (Kind.STDOUT, b"defg")]:
        seen.output.take(kind, data)
    seen.output.take(Kind.STDOUT, b"more")
    assert seen.emitted == [(Kind.STDOUT, b"abc"), (Kind.STDERR, b"x"), (Kind.STDOUT, b"de")]
    assert seen.output.totals == {Kind.STDOUT: 11, Kind.STDERR: 1}
    assert seen.output.truncated


def test_output_of_exactly_the_limit_is_not_cut() -> None:
    seen = Seen()
    seen.output.limit = 3
    seen.output.take(Kind.STDOUT, b"abc")
    assert (seen.emitted, seen.output.truncated) == ([(Kind.STDOUT, b"abc")], False)


def test_a_log_gets_everything_and_its_failure_is_a_gap() -> None:
    seen = Seen()
    log, full = os.memfd_create("log"), os.open("/dev/full", os.O_WRONLY)
    seen.output.limit = 1
    seen.output.log_to([log, full])
    seen.output.take(Kind.STDOUT, b"abc")
    seen.output.take(Kind.STDERR, b"de")
    assert os.pread(log, 9, 0) == b"abc"
    assert [gap[:2] for gap in seen.gaps] == [(0, 2)]
    os.close(log)
    os.close(full)
