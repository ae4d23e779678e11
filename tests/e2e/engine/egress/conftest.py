"""A host with an internet, and an engine with a gateway on it: one for all tests of a module."""

import os
from collections.abc import Iterator

import httpx2
import pytest

from e2e.hosts import SANDBOXES, Host, run
from e2e.network import internet as net


class Node:
    """A sandbox on a host that has an internet."""

    def __init__(self, host: Host, web: net.Internet) -> None:
        self.host, self.web = host, web
        self.start()

    def start(self, **settings: str) -> None:
        self.engine = self.host.start(
            ATOLL_NETWORK_NAMESERVERS=net.RESOLVER,
            ATOLL_NETWORK_IPV6="on",
            ATOLL_NETWORK_AUTHORITIES=str(self.web.authority.path),
            **settings,
        )
        self.client: httpx2.Client = self.engine.client()

    def shell(self, id: str, command: str) -> str:
        """Return what a command prints, its exit code if that is not 0."""
        answer = run(self.client, f"{SANDBOXES}/{id}", "bash", "-c", command)
        return str(answer["stdout"]) if answer["exitCode"] == 0 else f"exit {answer['exitCode']}"

    def change(self, id: str, **fields: object) -> dict[str, object]:
        answer = self.client.post(f"{SANDBOXES}/{id}/network", json=fields)
        assert answer.status_code == 200, answer.text
        body: dict[str, object] = answer.json()
        return body


@pytest.fixture(scope="module")
def standing() -> Iterator[Node]:
    if os.geteuid():
        pytest.skip("needs root")
    with net.temporary() as web:
        host = Host()
        made = Node(host, web)
        try:
            yield made
        finally:
            made.client.close()
            host.close()


@pytest.fixture
def node(standing: Node) -> Iterator[Node]:
    """The module's node, whose sandbox "a" does not exist yet."""
    standing.web.requests.clear()
    standing.web.names.questions.clear()
    yield standing
    assert standing.client.put("/v2/namespaces/N", json={}).status_code == 200
    assert standing.client.delete(f"{SANDBOXES}/a").status_code == 200
