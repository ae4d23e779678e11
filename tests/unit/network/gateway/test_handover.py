import os
import socket

from atoll.network.gateway.handover import COUNT, Handover

KINDS = (socket.SOCK_STREAM, socket.SOCK_STREAM, socket.SOCK_DGRAM)


def send(sender: socket.socket, name: str, count: int = COUNT) -> None:
    made = [socket.socket(type=kind) for kind in KINDS[:count]]
    socket.send_fds(sender, [name.encode()], [one.fileno() for one in made])
    for one in made:
        one.close()


def test_the_last_listeners_of_a_name_are_taken_and_all_others_closed() -> None:
    """What an engine sent that died before it said so would be kept open for good."""
    receiver, sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with receiver, sender:
        handover = Handover(receiver)
        assert handover.taken("a") is None
        before = len(os.listdir("/proc/self/fd"))
        for name in ("a", "b", "a"):
            send(sender, name)
        send(sender, "a", 2)
        found = handover.taken("a")
        assert found is not None
        kinds = [one.type for group in found for one in group]
        assert tuple(kinds) == KINDS
        assert len(os.listdir("/proc/self/fd")) == before + COUNT
        for group in found:
            for one in group:
                one.close()
        assert handover.taken("b") is None
