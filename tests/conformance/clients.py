"""The clients of the conformance suite: both SDKs, raw HTTP, the bridge and the command line.

What a case checks is an `Outcome`; how a client tells it (result, exception, JSON, exit code) is
that client's own form and is translated here.
"""

import asyncio
import http.client
import json
import socket
import struct
import subprocess
import sys
import tempfile
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import atoll
import atoll.sync
from atoll.errors import SandboxError
from conformance.streamed import Events, Streamed, timed

T = TypeVar("T")

FRAMES = "application/vnd.atoll.frames"


@dataclass(frozen=True)
class Outcome:
    """How a command ended. `error` is the code of a typed error, None when there was a result."""

    code: int | None
    stdout: bytes = b""
    stderr: bytes = b""
    signal: str | None = None
    truncated: bool = False
    totals: tuple[int, int] = (0, 0)
    error: str | None = None

    @property
    def text(self) -> str:
        return self.stdout.decode()


class Refusal(NamedTuple):
    """The typed error of a file call: its code and the path it is about."""

    code: str
    path: object


class Client(Protocol):
    """What a case can do with a sandbox. Options are those of the SDK."""

    async def exec(self, command: str | list[str], **options: Any) -> Outcome: ...

    async def stream(self, command: str | list[str], **options: Any) -> Streamed:
        """Run the command as a stream, which ends with its exit and nothing after it."""

    async def write(self, path: str, content: bytes, **options: Any) -> None: ...

    async def read(self, path: str) -> bytes: ...

    async def refusal(self, path: str, content: bytes | None = None) -> Refusal:
        """Read the file, or write *content* to it, and return how that failed."""

    async def expose(self, port: int, **options: Any) -> str:
        """Expose a port; return its URL, or the code of a typed error."""

    async def unexpose(self, port: int) -> None: ...

    async def exposed(self) -> list[int]: ...

    async def close(self) -> None: ...


def _refusal(error: SandboxError) -> Refusal:
    return Refusal(error.wire_code, error.context.get("path"))


def _outcome(result: atoll.ExecResult, error: str | None = None) -> Outcome:
    return Outcome(
        result.exit_code,
        result.stdout_bytes,
        result.stderr_bytes,
        result.signal,
        result.truncated,
        (result.stdout_total, result.stderr_total),
        error,
    )


def _failed(error: SandboxError) -> Outcome:
    if error.result is not None:
        return _outcome(error.result, error.wire_code)
    return Outcome(None, error=error.wire_code)


class AsyncClient:
    """The asynchronous SDK."""

    def __init__(self, url: str, sandbox_id: str) -> None:
        self.env = atoll.connect(url)
        self.sandbox = atoll.get_sandbox(self.env.Sandbox, sandbox_id)

    async def exec(self, command: str | list[str], **options: Any) -> Outcome:
        try:
            return _outcome(await self.sandbox.exec(command, **options))
        except SandboxError as error:
            return _failed(error)

    async def stream(self, command: str | list[str], **options: Any) -> Streamed:
        events = Events()
        async for event in self.sandbox.exec_stream(command, **options):
            events.add(event)
        return events.result()

    async def write(self, path: str, content: bytes, **options: Any) -> None:
        await self.sandbox.write_file(path, content, **options)

    async def read(self, path: str) -> bytes:
        return (await self.sandbox.read_file(path, encoding="bytes")).content

    async def refusal(self, path: str, content: bytes | None = None) -> Refusal:
        try:
            await (self.read(path) if content is None else self.write(path, content))
        except SandboxError as error:
            return _refusal(error)
        raise AssertionError(f"{path} was not refused")

    async def expose(self, port: int, **options: Any) -> str:
        try:
            return (await self.sandbox.expose_port(port, **options)).url
        except SandboxError as error:
            return error.wire_code

    async def unexpose(self, port: int) -> None:
        await self.sandbox.unexpose_port(port)

    async def exposed(self) -> list[int]:
        return [found.port for found in await self.sandbox.get_exposed_ports()]

    async def close(self) -> None:
        await self.env.aclose()


class SyncClient:
    """The blocking SDK, in threads."""

    def __init__(self, url: str, sandbox_id: str) -> None:
        self.env = atoll.sync.connect(url)
        self.sandbox = atoll.sync.get_sandbox(self.env.Sandbox, sandbox_id)

    async def exec(self, command: str | list[str], **options: Any) -> Outcome:
        try:
            return _outcome(await asyncio.to_thread(self.sandbox.exec, command, **options))
        except SandboxError as error:
            return _failed(error)

    async def stream(self, command: str | list[str], **options: Any) -> Streamed:
        def read() -> Streamed:
            events = Events()
            for event in self.sandbox.exec_stream(command, **options):
                events.add(event)
            return events.result()

        return await asyncio.to_thread(read)

    async def write(self, path: str, content: bytes, **options: Any) -> None:
        await asyncio.to_thread(self.sandbox.write_file, path, content, **options)

    async def read(self, path: str) -> bytes:
        def read() -> bytes:
            return self.sandbox.read_file(path, encoding="bytes").content

        return await asyncio.to_thread(read)

    async def refusal(self, path: str, content: bytes | None = None) -> Refusal:
        try:
            await (self.read(path) if content is None else self.write(path, content))
        except SandboxError as error:
            return _refusal(error)
        raise AssertionError(f"{path} was not refused")

    async def expose(self, port: int, **options: Any) -> str:
        try:
            return (await asyncio.to_thread(self.sandbox.expose_port, port, **options)).url
        except SandboxError as error:
            return error.wire_code

    async def unexpose(self, port: int) -> None:
        await asyncio.to_thread(self.sandbox.unexpose_port, port)

    async def exposed(self) -> list[int]:
        return [found.port for found in await asyncio.to_thread(self.sandbox.get_exposed_ports)]

    async def close(self) -> None:
        self.env.close()


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


class HttpClient:
    """HTTP as a program without our SDK would speak it: JSON in, JSON out, raw bodies of files."""

    def __init__(self, url: str, sandbox_id: str) -> None:
        self._socket = url.removeprefix("unix://")
        self._base = f"/v2/namespaces/Sandbox/sandboxes/{sandbox_id}"

    async def exec(self, command: str | list[str], **options: Any) -> Outcome:
        fields: dict[str, Any] = {"command": command, "buffered": True, **options}
        if "timeout" in fields and fields["timeout"] is not None:
            fields["timeout"] = round(fields["timeout"] * 1000)
        if isinstance(command, list):
            fields["shellState"] = False
        stdin = fields.pop("stdin", None)
        if stdin is None:
            status, body = await self._request("POST", "/exec", json.dumps(fields).encode())
        else:
            body = _with_input(fields | {"stdin": True}, stdin)
            status, body = await self._request("POST", "/exec", body, FRAMES)
        told = json.loads(body)
        if status == 200:
            return self._result(told)
        result = told.get("context", {}).get("result")
        return self._result(result, told["code"]) if result else Outcome(None, error=told["code"])

    async def stream(self, command: str | list[str], **options: Any) -> Streamed:
        if timeout := options.pop("timeout", None):
            options["timeout"] = round(timeout * 1000)
        return await asyncio.to_thread(self._stream, {"command": command, **options})

    def _stream(self, fields: dict[str, Any]) -> Streamed:
        start, pieces = time.monotonic(), list[tuple[float, bytes]]()
        connection = _UnixConnection(self._socket)
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        try:
            connection.request("POST", f"{self._base}/exec", json.dumps(fields), headers)
            answer = connection.getresponse()
            events = [json.loads(line[6:]) for line in timed(answer, start, pieces)]
        finally:
            connection.close()
        end = events[-1]
        assert end["type"] == "complete", end
        result = end["result"]
        return Streamed(
            pieces, end["exitCode"], result["signal"], result["sessionEnded"], result["timedOut"]
        )

    def _result(self, told: dict[str, Any], error: str | None = None) -> Outcome:
        stdout, stderr = (_bytes(told, name) for name in ("stdout", "stderr"))
        return Outcome(
            told["exitCode"],
            stdout,
            stderr,
            told["signal"],
            told["truncated"],
            (told["stdoutTotal"], told["stderrTotal"]),
            error,
        )

    async def write(self, path: str, content: bytes, **options: Any) -> None:
        query = "&".join([f"path={path}", *(f"{name}={value}" for name, value in options.items())])
        status, body = await self._request("PUT", f"/files?{query}", content)
        assert status == 200, body

    async def read(self, path: str) -> bytes:
        status, body = await self._request("GET", f"/files?path={path}")
        assert status == 200, body
        return body

    async def refusal(self, path: str, content: bytes | None = None) -> Refusal:
        method = "GET" if content is None else "PUT"
        status, body = await self._request(method, f"/files?path={path}", content)
        assert status >= 400
        told = json.loads(body)
        return Refusal(told["code"], told["context"].get("path"))

    async def expose(self, port: int, **options: Any) -> str:
        fields = json.dumps({"port": port, **options}).encode()
        _, body = await self._request("POST", "/ports", fields)
        told = json.loads(body)
        return str(told.get("url") or told["code"])

    async def unexpose(self, port: int) -> None:
        status, body = await self._request("DELETE", f"/ports/{port}")
        assert status == 200, body

    async def exposed(self) -> list[int]:
        _, body = await self._request("GET", "/ports")
        return [found["port"] for found in json.loads(body)["ports"]]

    async def _request(
        self, method: str, path: str, body: bytes | None = None, kind: str = "application/json"
    ) -> tuple[int, bytes]:
        def request() -> tuple[int, bytes]:
            connection = _UnixConnection(self._socket)
            try:
                connection.request(method, self._base + path, body, {"content-type": kind})
                answer = connection.getresponse()
                return answer.status, answer.read()
            finally:
                connection.close()

        return await asyncio.to_thread(request)

    async def close(self) -> None:
        pass


def _with_input(fields: dict[str, Any], stdin: str | bytes) -> bytes:
    """Return a request with its standard input: frames HEADER, STDIN… and STDIN_CLOSE."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    pieces = [data[start : start + 1_000_000] for start in range(0, len(data), 1_000_000)]
    parts = [(1, json.dumps(fields).encode()), *((7, piece) for piece in pieces), (8, b"")]
    return b"".join(struct.pack(">BI", kind, len(body)) + body for kind, body in parts)


def _bytes(told: dict[str, Any], name: str) -> bytes:
    encoded = told.get(f"{name}Base64")
    return b64decode(encoded) if encoded else str(told[name]).encode()


class BridgeClient(HttpClient):
    """The bridge of the 0.12 SDK: words in, events out, files below /workspace, no shell state."""

    def __init__(self, url: str, sandbox_id: str) -> None:
        super().__init__(url, sandbox_id)
        self._base = f"/v1/sandbox/{sandbox_id}"

    async def exec(self, command: str | list[str], **options: Any) -> Outcome:
        argv = command if isinstance(command, list) else ["bash", "-c", command]
        fields: dict[str, Any] = {"argv": argv}
        if "timeout" in options:
            fields["timeout_ms"] = round(options.pop("timeout") * 1000)
        assert not options, f"the bridge has no {options}"
        status, body = await self._request("POST", "/exec", json.dumps(fields).encode())
        assert status == 200, body
        code: int | None = None
        error: str | None = None
        output = {"stdout": b"", "stderr": b""}
        for event in body.decode().split("\n\n"):
            name, _, data = event.removeprefix("event: ").partition("\ndata: ")
            if name in output:
                output[name] += b64decode(data)
            elif name == "exit":
                code = json.loads(data)["exit_code"]
            elif name == "error":
                error = "TIMEOUT" if "timed out" in data else json.loads(data)["code"]
        stdout, stderr = output["stdout"], output["stderr"]
        return Outcome(code, stdout, stderr, totals=(len(stdout), len(stderr)), error=error)

    async def write(self, path: str, content: bytes, **options: Any) -> None:
        assert not options, f"the bridge has no {options}"
        status, body = await self._request("PUT", f"/file{path}", content)
        assert (status, body) == (200, b'{"ok":true}')

    async def read(self, path: str) -> bytes:
        status, body = await self._request("GET", f"/file{path}")
        assert status == 200, body
        return body


class CliClient:
    """``atoll containers exec`` and ``atoll cp``: no shell state, a string runs as a script."""

    def __init__(self, url: str, sandbox_id: str) -> None:
        self._url = url
        self._id = sandbox_id

    async def exec(self, command: str | list[str], **options: Any) -> Outcome:
        words = command if isinstance(command, list) else ["bash", "-c", command]
        stdin = options.pop("stdin", b"")
        flags = [f"--cwd={options.pop('cwd')}"] if "cwd" in options else []
        flags += [f"--env={name}={value}" for name, value in options.pop("env", {}).items()]
        assert not options, f"the command line has no {options}"
        done = await self._run(["containers", "exec", *flags, self._id, "--", *words], stdin)
        return Outcome(done.returncode, done.stdout, done.stderr)

    async def stream(self, command: str | list[str], **options: Any) -> Streamed:
        raise NotImplementedError("the command line tells no events")

    async def write(self, path: str, content: bytes, **options: Any) -> None:
        assert not options
        done = await self._run(["cp", "/dev/stdin", f"{self._id}:{path}"], content)
        assert done.returncode == 0, done.stderr

    async def read(self, path: str) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            done = await self._run(["cp", f"{self._id}:{path}", f"{folder}/f"], b"")
            assert done.returncode == 0, done.stderr
            return Path(folder, "f").read_bytes()

    async def refusal(self, path: str, content: bytes | None = None) -> Refusal:
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = (
                "/dev/stdin" if content is not None else f"{folder}/f",
                f"{self._id}:{path}",
            )
            ends = [theirs, ours] if content is None else [ours, theirs]
            done = await self._run(["cp", "--json", *ends], content or b"")
            assert done.returncode not in {0, 1}, done.stderr
            assert not Path(folder, "f").exists()
        told = json.loads(done.stderr)["error"]
        return Refusal(told["code"], told["context"].get("path"))

    async def expose(self, port: int, **options: Any) -> str:
        raise AssertionError("the command line exposes no ports")

    async def unexpose(self, port: int) -> None:
        raise AssertionError("the command line exposes no ports")

    async def exposed(self) -> list[int]:
        raise AssertionError("the command line exposes no ports")

    async def _run(self, words: list[str], stdin: bytes) -> "subprocess.CompletedProcess[bytes]":
        argv = [sys.executable, "-m", "atoll.cli.main", *words]
        argv[5:5] = ["--url", self._url] if words[0] == "containers" else []
        if words[0] == "cp":
            argv += ["--url", self._url]
        return await asyncio.to_thread(
            subprocess.run, argv, input=stdin, capture_output=True, check=False
        )

    async def close(self) -> None:
        pass


CLIENTS: dict[str, Callable[[str, str], Client]] = {
    "async": AsyncClient,
    "sync": SyncClient,
    "http": HttpClient,
    "cli": CliClient,
    "bridge": BridgeClient,
}


async def gather(events: AsyncIterator[T]) -> list[T]:
    return [event async for event in events]
