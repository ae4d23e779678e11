from atoll.engine.interpreter import code_header
from atoll.wire.interpreter import RunCodeRequest


def test_the_agent_is_asked_for_what_the_caller_wants() -> None:
    request = RunCodeRequest(code="1", context="c", env_vars={"A": None}, timeout_ms=1500)
    header = code_header(request, "op", cancel_on_drop=True, buffered=True)
    assert (header["op"], header["id"], header["code"]) == ("code.run", "op", "1")
    assert (header["timeout"], header["env"], header["cancel_on_drop"]) == (1.5, {"A": None}, True)
    assert header["output_limit"] == 32 << 20
    endless = code_header(
        RunCodeRequest(code="1", timeout_ms=None), "op", cancel_on_drop=False, buffered=False
    )
    assert (endless["timeout"], endless["output_limit"]) == (None, None)
