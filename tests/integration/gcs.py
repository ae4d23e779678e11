"""What stands for Google Cloud Storage in the tests: an S3 server behind what Google's differs in.

No emulator of it takes uploads of its XML interface or checks HMAC keys, which is what clients of S3
use there. Its differences are refused here as its documentation and users of it say: many deletions in
one request, parts that are copied, and a signature over `Accept-Encoding`, which its front end changes.
"""

import http.client
import re
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from integration import buckets

_OF_CONNECTION = {"connection", "transfer-encoding", "keep-alive"}
_SIGNED = re.compile(r"SignedHeaders=([^,]+)")


class Server(NamedTuple):
    """Where it listens, and what it has."""

    endpoint: str
    behind: buckets.Server
    refused: list[str]
    """Why requests were refused so far."""


class _Front(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    behind: buckets.Server
    refused: list[str]

    def do_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if reason := self._difference():
            self.refused.append(reason)
            self._answer(400, {}, f"<Error><Code>{reason}</Code></Error>".encode())
        else:
            self._answer(*self._passed_on(body))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_any  # noqa: N815

    def _difference(self) -> str | None:
        query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        signed = _SIGNED.search(self.headers.get("Authorization", ""))
        if signed and "accept-encoding" in signed[1].split(";"):
            return "SignatureDoesNotMatch"
        copied = "partNumber" in query and "x-amz-copy-source" in self.headers
        return "NotImplemented" if copied or "delete" in query else None

    def _passed_on(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        host = self.behind.endpoint.removeprefix("http://")
        with closing(http.client.HTTPConnection(host, timeout=60)) as connection:
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            kept = {
                name: v for name, v in answer.getheaders() if name.lower() not in _OF_CONNECTION
            }
            return answer.status, kept, answer.read()

    def _answer(self, status: int, fields: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in ({"Content-Length": str(len(body))} | fields).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving() -> Iterator[Server]:
    """Run one with the bucket and the user of `buckets.serving`."""
    with buckets.serving() as behind:
        refused: list[str] = []
        handler = type("Front", (_Front,), {"behind": behind, "refused": refused})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield Server(f"http://127.0.0.1:{server.server_port}", behind, refused)
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
