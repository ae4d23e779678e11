import os
import socket

import pytest

from atoll.agent import channel


def test_a_message_carries_fields_and_descriptors() -> None:
    ours, theirs = channel.pair()
    reader, writer = os.pipe()
    channel.send(ours, {"a": "é\udcff", "n": None}, [writer])
    os.close(writer)
    message = channel.receive(theirs)
    assert message
    assert message.body == {"a": "é\udcff", "n": None}
    assert not os.get_inheritable(message.fds[0])
    os.write(message.fds[0], b"through")
    assert os.read(reader, 99) == b"through"
    for fd in (reader, *message.fds):
        os.close(fd)
    ours.close()
    theirs.close()


@pytest.mark.parametrize("size", [channel.INLINE - 9, channel.INLINE, 9_000_000])
def test_a_message_of_any_size_is_whole(size: int) -> None:
    ours, theirs = channel.pair()
    reader, writer = os.pipe()
    ours.setblocking(False)
    channel.send(ours, {"t": "x" * size}, [reader, writer])
    message = channel.receive(theirs)
    assert message
    assert len(message.body["t"]) == size
    assert len(message.fds) == 2
    for fd in (reader, writer, *message.fds):
        os.close(fd)
    ours.close()
    theirs.close()


def test_messages_stay_apart_and_the_end_is_seen() -> None:
    ours, theirs = channel.pair()
    for n in range(3):
        channel.send(ours, {"n": n})
    ours.close()
    bodies = [message.body["n"] for message in iter(lambda: channel.receive(theirs), None)]
    assert bodies == [0, 1, 2]
    theirs.close()


def test_a_full_channel_fails_at_once_and_leaks_nothing() -> None:
    ours, theirs = channel.pair()
    ours.setblocking(False)
    before = len(os.listdir("/proc/self/fd"))
    failures = []
    for size in [20_000] * 1_000 + [200_000] * 1_000:
        try:
            channel.send(ours, {"t": "x" * size})
        except BlockingIOError:
            failures.append(size)
    assert {20_000, 200_000} <= set(failures)
    theirs.close()
    ours.close()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_descriptors_come_with_bytes_of_a_stream() -> None:
    ours, theirs = socket.socketpair()
    socket.send_fds(ours, [b"hello"], [0])
    data, fds = channel.receive_bytes(theirs, 2)
    assert (data, len(fds)) == (b"he", 1)
    assert channel.receive_bytes(theirs, 9) == (b"llo", [])
    os.close(fds[0])
    ours.close()
    theirs.close()


def test_lost_descriptors_are_an_error_and_none_stays_open() -> None:
    """Who sends more than `MAX_FDS` could else leave a message without what belongs to it."""
    ours, theirs = socket.socketpair()
    before = len(os.listdir("/proc/self/fd"))
    socket.send_fds(ours, [b"x"], [0] * (channel.MAX_FDS + 9))
    with pytest.raises(OSError, match="Too many open files"):
        channel.receive_bytes(theirs, 1)
    assert len(os.listdir("/proc/self/fd")) == before
    ours.close()
    theirs.close()


def test_a_large_message_without_its_file_is_an_error() -> None:
    ours, theirs = channel.pair()
    ours.send(b">")
    with pytest.raises(OSError, match="without its file"):
        channel.receive(theirs)
    ours.close()
    theirs.close()
