import pytest
from msgspec import DecodeError

from atoll.network.gateway import protocol
from atoll.network.gateway.protocol import (
    LENGTH,
    MAX_FRAME,
    Answered,
    Authority,
    Call,
    Configure,
    Put,
    ToEngine,
    ToGateway,
)
from atoll.network.policy import Handler, SandboxPolicy, Secret

POLICY = SandboxPolicy(
    key="default/box",
    host_ref="e-1",
    addresses=("10.0.0.2",),
    allowed=("example.com",),
    runtime_by_host={"a.example": Handler("outbound_handlers", "name", {"limit": 3})},
    secrets=(Secret("KEY", "placeholder", ("example.com",), "value"),),
)


@pytest.mark.parametrize(
    "message",
    [
        Configure(nameservers=("192.0.2.1",)),
        Put(policy=POLICY, log="a", authority=Authority("certificate", "key")),
        Answered(status=200, headers=[("a", "b")], body=b"\0\xff"),
    ],
)
def test_what_the_engine_says_arrives_as_it_was(
    message: protocol.Question | protocol.HandlerAnswer,
) -> None:
    data = protocol.frame(ToGateway(number=7, message=message))
    assert protocol.frame_length(data[:LENGTH]) == len(data) - LENGTH
    assert protocol.read_to_gateway(data[LENGTH:]) == ToGateway(number=7, message=message)


def test_a_call_of_a_handler_arrives_as_it_was() -> None:
    call = Call(
        key="default/box",
        host_ref="e-1",
        handler=Handler("outbound"),
        method="POST",
        url="http://a.example/",
        headers=[("Host", "a.example")],
        body=b"\xff",
    )
    data = protocol.frame(ToEngine(number=1, message=call))
    assert protocol.read_to_engine(data[LENGTH:]).message == call


def test_a_length_that_is_too_large_is_refused_before_anything_is_read() -> None:
    with pytest.raises(ValueError, match="too large"):
        protocol.frame_length((MAX_FRAME + 1).to_bytes(LENGTH, "big"))


def test_a_message_that_is_too_large_is_not_sent() -> None:
    with pytest.raises(ValueError, match="too large"):
        protocol.frame(
            ToGateway(number=1, message=Answered(status=200, headers=[], body=bytes(MAX_FRAME)))
        )


def test_garbage_is_no_frame() -> None:
    with pytest.raises(DecodeError):
        protocol.read_to_gateway(b"garbage")
    with pytest.raises(DecodeError):
        protocol.read_to_engine(b"\xc0")


def test_keys_and_secrets_are_not_in_what_is_logged_of_a_message() -> None:
    put = Put(policy=POLICY, log="a", authority=Authority("certificate", "the-key"))
    assert "the-key" not in repr(put)
    assert "'value'" not in repr(put)
