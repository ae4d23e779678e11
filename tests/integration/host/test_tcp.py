import socket

import pytest

from atoll.host import tcp


async def test_what_listens_is_reached_by_a_socket_that_does_not_block() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = await tcp.connect("127.0.0.1", server.getsockname()[1], 5)
        assert not connection.getblocking()
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        connection.close()


async def test_where_nobody_listens_the_connection_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectionError):
        await tcp.connect("127.0.0.1", port, 5)


async def test_an_address_that_does_not_answer_counts_as_refused() -> None:
    """A listener whose queue is full takes no more connections, and says nothing."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting: list[socket.socket] = []
        with pytest.raises(ConnectionRefusedError, match="does not answer"):
            await _fill(port, waiting)
        for one in waiting:
            one.close()


async def _fill(port: int, waiting: list[socket.socket]) -> None:
    for _ in range(8):
        waiting += [await tcp.connect("127.0.0.1", port, 0.2)]
