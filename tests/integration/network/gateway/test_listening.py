import socket

from atoll.network.gateway import listening
from atoll.network.gateway.listening import Ports, Sockets


def test_names_are_asked_for_at_one_port_by_both_ways() -> None:
    made = listening.listen(None)
    assert {one.getsockname()[1] for one in (*made.dns_tcp, *made.dns_udp)} == {made.ports.names}
    assert {one.getsockname()[1] for one in made.connections} == {made.ports.connections}
    made.close()


def test_ports_of_before_are_taken_again_if_they_are_free() -> None:
    made = listening.listen(None)
    ports = made.ports
    made.close()
    again = listening.listen(ports)
    assert again.ports == ports
    with socket.create_connection(("127.0.0.1", ports.connections)):
        pass
    other = listening.listen(ports)
    assert isinstance(other.ports, Ports)
    assert other.ports != ports
    again.close()
    other.close()


def test_a_gateway_that_listens_nowhere_on_the_host_has_no_ports() -> None:
    """One of a user: it is handed the listeners of each sandbox."""
    assert Sockets([], [], []).ports == Ports(0, 0)
