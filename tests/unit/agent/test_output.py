from atoll.agent.output import Output
from atoll.wire.frames import Kind


class Seen:
    def __init__(self) -> None:
        self.emitted: list[tuple[int, bytes]] = []
        self.output = Output(lambda kind, data: self.emitted.append((kind, data)))


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
