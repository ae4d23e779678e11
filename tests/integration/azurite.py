"""A server of Azure Blob Storage of the tests, on loopback: Azurite, which checks all signatures."""

import base64
import email.utils
import hmac
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

CONTAINER = "container-of-tests"
ACCOUNT = "account"
KEY = base64.b64encode(b"the key of an account of the tests").decode()

_INSTALLED = Path(sys.prefix) / "azurite/node_modules/.bin/azurite-blob"
_VERSION = "2020-10-02"


class Server(NamedTuple):
    """Where it listens."""

    endpoint: str
    pid: int

    @property
    def credentials(self) -> dict[str, str]:
        return {"accessKeyId": ACCOUNT, "secretAccessKey": KEY}

    def put(self, name: str, data: bytes) -> None:
        self._asked("PUT", f"/{CONTAINER}/{name}", data, {"x-ms-blob-type": "BlockBlob"})

    def get(self, name: str) -> bytes:
        return self._asked("GET", f"/{CONTAINER}/{name}")

    def make(self, container: str) -> None:
        self._asked("PUT", f"/{container}?restype=container", b"")

    def _asked(
        self, verb: str, path: str, data: bytes | None = None, fields: dict[str, str] | None = None
    ) -> bytes:
        date = email.utils.formatdate(usegmt=True)
        ours = {"x-ms-date": date, "x-ms-version": _VERSION, **(fields or {})}
        kind = {"Content-Type": "application/octet-stream"} if data is not None else {}
        named, _, query = path.partition("?")
        length = str(len(data)) if data else ""
        lines = [verb, "", "", length, "", *kind.values(), *[""] * (7 - len(kind))]
        lines += [f"{name}:{ours[name]}" for name in sorted(ours)]
        lines += [f"/{ACCOUNT}/{ACCOUNT}{named}"] + ([query.replace("=", ":")] if query else [])
        key = base64.b64decode(KEY)
        signature = base64.b64encode(hmac.digest(key, "\n".join(lines).encode(), "sha256")).decode()
        headers = {**ours, **kind, "Authorization": f"SharedKey {ACCOUNT}:{signature}"}
        url = f"{self.endpoint}/{ACCOUNT}{path}"
        with urllib.request.urlopen(
            urllib.request.Request(url, data, headers, method=verb)
        ) as answer:
            return bytes(answer.read())


@contextmanager
def serving() -> Iterator[Server]:
    """Run a server with one account and one container, all in memory."""
    if not _INSTALLED.exists():
        pytest.skip("`make azurite` was not run")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [_INSTALLED, "--silent", "--inMemoryPersistence", "--blobHost", "127.0.0.1", "--blobPort",
         str(port), "--disableTelemetry"],
        env={**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _answering(port)
        server = Server(f"http://127.0.0.1:{port}", process.pid)
        server.make(CONTAINER)
        yield server
    finally:
        process.kill()
        process.wait()


def _answering(port: int) -> None:
    end = time.monotonic() + 50
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.1)
        else:
            return
