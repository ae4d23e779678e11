import pytest

from atoll.network.gateway import clienthello
from atoll.network.gateway.clienthello import Malformed
from atoll.network.gateway.handshake import Follower
from unit.network.gateway.test_clienthello import made, named

RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
HELLO = made(named(b"good.test"))
EVIL = made(named(b"evil.test"))
CIPHER = b"\x14\x03\x03\0\x01\x01"
EARLY = b"\x17\x03\x03\0\x04data"


def answer(random: bytes, kind: int = 2) -> bytes:
    message = bytes([kind]) + (34).to_bytes(3, "big") + b"\x03\x03" + random
    return b"\x16\x03\x03" + len(message).to_bytes(2, "big") + message


def follower() -> Follower:
    hello = clienthello.read(HELLO)
    assert hello is not None
    return Follower(hello)


@pytest.mark.parametrize("step", [1, 7, 1_000])
def test_a_retry_for_the_same_server_passes(step: int) -> None:
    followed = follower()
    assert followed.up(HELLO) == HELLO
    for byte in answer(RETRY):
        assert followed.down(bytes([byte])) == bytes([byte])
    second = CIPHER + HELLO + EARLY
    passed = b"".join(followed.up(second[at : at + step]) for at in range(0, len(second), step))
    assert passed == second


@pytest.mark.parametrize("before", [b"", CIPHER, EARLY, EARLY + CIPHER])
@pytest.mark.parametrize("second", [EVIL, made(named(b"evil.test"), record=3), made()])
def test_a_retry_for_another_server_does_not_pass(before: bytes, second: bytes) -> None:
    followed = follower()
    followed.up(HELLO + before)
    followed.down(answer(RETRY))
    with pytest.raises(Malformed):
        followed.up(second)


def test_a_second_hello_does_not_run_ahead_of_the_answer() -> None:
    followed = follower()
    with pytest.raises(Malformed):
        followed.up(HELLO + EVIL)


@pytest.mark.parametrize(
    "first", [answer(bytes(32)), answer(RETRY, kind=11), b"\x15\x03\x03\0\x02ab"]
)
def test_after_an_answer_that_is_none_of_a_retry_everything_passes(first: bytes) -> None:
    followed = follower()
    followed.up(HELLO)
    followed.down(first + bytes(40))
    assert followed.up(b"\x16\x03\x03 anything") == b"\x16\x03\x03 anything"
