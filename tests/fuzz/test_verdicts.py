"""Logs of runtimes, of which a hostile image may write a part: always one plain error."""

import json

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from atoll.errors import ContainerUnavailableError
from atoll.runtime.oci.verdict import verdict
from fuzz.examples import examples
from fuzz.shapes import JUNK

_ENTRY = st.fixed_dictionaries(
    {}, optional={"level": st.sampled_from(["error", "fatal", "info"]) | JUNK, "msg": JUNK}
)
_LINE = st.one_of(
    _ENTRY.map(json.dumps), JUNK.map(json.dumps), st.text(max_size=20), st.text('{}[]",:\\u', max_size=20)
)  # fmt: skip


@examples(300)
@given(st.lists(_LINE, max_size=4), st.integers(-64, 255), st.text(max_size=20))
@example(["[" * 100_000], 1, "")
@example(['{"level": "error", "msg": ' + "[" * 900 + "]" * 900 + "}"], 1, "")
@example(['{"level": ["error"], "msg": "x"}'], 1, "")
@example(['{"level": "error", "msg": "\\ud800"}'], 1, "")
@example(['{"level": "error", "msg": ' + "9" * 5_000 + "}"], 1, "")
@example(["x" * 100_000], 1, "x" * 100_000)
def test_every_log_is_one_error_that_can_be_told(lines: list[str], code: int, stderr: str) -> None:
    error = verdict("runc", "run", code, "\n".join(lines), stderr=stderr, private={"/s": "(s)"})
    if code == 0:
        assert error is None
        return
    assert type(error) is ContainerUnavailableError
    assert len(msgspec.json.encode(error.to_wire())) < 100_000
