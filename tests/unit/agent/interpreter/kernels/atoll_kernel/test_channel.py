import os
import socket
from array import array

from atoll.agent.interpreter.kernels.atoll_kernel import channel
from atoll.agent.interpreter.kernels.atoll_kernel.channel import Channel


def test_messages_come_whole_with_their_files() -> None:
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    with ours, theirs:
        head = channel.HEADER.pack(channel.RUN, 7, 5)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [writer]))]
        ours.sendmsg([head], rights)
        ours.sendall(b"hello")
        os.close(writer)
        message = Channel(theirs).receive()
        assert message is not None
        assert (message.kind, message.number, message.body) == (channel.RUN, 7, b"hello")
        (fd,) = message.fds
        os.write(fd, b"x")
        assert os.read(reader, 1) == b"x"
        os.close(fd)
        os.close(reader)
        ours.sendall(head)
        ours.close()
        assert Channel(theirs).receive() is None  # cut
        assert Channel(theirs).receive() is None  # at the end


def test_what_is_sent_has_kind_number_and_length() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Channel(theirs).send_json(channel.DONE, 3, {"a": 1})
        assert ours.recv(100) == channel.HEADER.pack(channel.DONE, 3, 8) + b'{"a": 1}'
