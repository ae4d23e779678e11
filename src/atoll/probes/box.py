"""A sandbox of a site, as a caller of the API has it."""

import json
import shlex
from typing import Any

import httpx2

from atoll.errors import SandboxError, from_wire
from atoll.probes import program
from atoll.runtime.oci.bundle import AGENT_DIR

_SERVER = r"""
import socket
with socket.create_server(("{bind}", {port})) as listener:
    while True:
        peer = listener.accept()[0]
        peer.settimeout(5)
        try:
            head = b""
            while b"\r\n\r\n" not in head and (piece := peer.recv(65536)):
                head += piece
            path = head.split(b" ")[1] if b" " in head else b""
            body = {marker!r}.encode() + path
            peer.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
                         % len(body) + body)
        except OSError:
            pass
        peer.close()
"""


class Box:
    """One sandbox; made by `Site.box`.

    Args:
        client: to the engine.
        namespace: of the sandbox.
        id: of the sandbox.
    """

    def __init__(self, client: httpx2.Client, namespace: str, id: str) -> None:
        self.client, self.namespace, self.id = client, namespace, id
        self.path = f"/v2/namespaces/{namespace}/sandboxes/{id}"

    def ask(self, method: str, place: str = "", **content: Any) -> httpx2.Response:
        """Return the answer to a request below the sandbox's path, whatever it is."""
        return self.client.request(method, self.path + place, **content)

    def told(self, method: str, place: str = "", **content: Any) -> dict[str, Any]:
        """Return the result of a request.

        Raises:
            SandboxError: the engine's own.
        """
        return result(self.ask(method, place, **content))

    def run(self, *command: str, user: str | None = None) -> dict[str, Any]:
        """Return how *command* ended, whatever its exit code."""
        return self.told("POST", "/exec", json=_command(command, user))

    def sh(self, script: str, user: str | None = None) -> str:
        """Return what *script* printed, both streams."""
        done = self.run("/bin/sh", "-c", script, user=user)
        return str(done["stdout"]) + str(done["stderr"])

    def python(self, text: str, user: str | None = None) -> str:
        """Return what a script printed that the agent's own interpreter ran as a command.

        Raises:
            SandboxError: it failed; the message has its last line.
        """
        done = self.run(*program.command(self.loader(), text), user=user)
        if done["exitCode"]:
            raise SandboxError(f"a probe failed inside: {str(done['stderr'])[-400:]}")
        return str(done["stdout"])

    def probe(self, name: str, **facts: Any) -> list[str]:
        """Return what the probe *name* ("module.function") of `atoll.probes.inside` could do."""
        found: dict[str, list[str]] = json.loads(self.python(program.script({name: facts})))
        return found[name]

    def serve(self, marker: str, port: int, bind: str = "127.0.0.1") -> None:
        """Have a server in the sandbox answer each HTTP request with *marker* and its path."""
        text = _SERVER.format(marker=marker, port=port, bind=bind)
        script = shlex.join(program.command(self.loader(), text))
        self.told("POST", "/processes", json={"command": script, "processId": "server"})
        waited = self.told("POST", "/ports/wait", json={"ports": [port], "wait": 20_000})
        if waited["missing"]:
            raise SandboxError(f"no server came up at port {port}")

    def write(self, path: str, content: bytes) -> None:
        """Write a file inside."""
        self.told("PUT", "/files", params={"path": path}, content=content)

    def read(self, path: str) -> bytes:
        """Return the content of a file inside."""
        answer = self.ask("GET", "/files", params={"path": path})
        if answer.is_error:
            result(answer)
        return answer.content

    def loader(self) -> str:
        """Return the file name of the dynamic loader that the agent brought along."""
        listed = self.told("GET", "/files/list", params={"path": f"{AGENT_DIR}/lib"})["files"]
        return next(str(file["name"]) for file in listed if file["name"].startswith("ld-"))


def result(answer: httpx2.Response) -> dict[str, Any]:
    """Return the JSON of *answer*; raise the error that it holds."""
    body = answer.json()
    if answer.is_error:
        raise from_wire(body)
    told: dict[str, Any] = body
    return told


def _command(command: tuple[str, ...], user: str | None) -> dict[str, Any]:
    return {"command": list(command), "user": user} if user else {"command": list(command)}
