"""A git server over smart HTTP for use inside a sandbox: ``python gitserver.py ROOT PORT_FILE``.

Below ``/private/`` it wants user ``u`` and password ``tok-en%``; below ``/slow/`` it takes 2 s
before the pack, below ``/hang/`` it never answers; ``/away/`` redirects to its other name, where
it wants credentials too. Every Authorization header it gets is written to ``ROOT/seen``.
"""

import base64
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(sys.argv[1])
RIGHT = "Basic " + base64.b64encode(b"u:tok-en%").decode()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.answer(b"")

    def do_POST(self) -> None:
        self.answer(self.rfile.read(int(self.headers.get("content-length", 0))))

    def answer(self, body: bytes) -> None:
        url = urlsplit(self.path)
        _, kind, *rest = url.path.split("/")
        given = self.headers.get("authorization")
        if given:
            with (ROOT / "seen").open("a") as seen:
                seen.write(f"{self.headers['host']} {given}\n")
        if kind == "hang":
            time.sleep(600)
        if kind == "slow" and body:
            time.sleep(2)
        if kind == "away":
            port = self.headers["host"].partition(":")[2]
            self.send_response(302)
            self.send_header(
                "Location", f"http://localhost:{port}/private/{'/'.join(rest)}?{url.query}"
            )
            self.end_headers()
        elif kind in {"private", "slow"} and given != RIGHT:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.backend("/" + "/".join(rest), url.query, body)

    def backend(self, path: str, query: str, body: bytes) -> None:
        done = subprocess.run(
            ["git", "http-backend"],
            input=body,
            stdout=subprocess.PIPE,
            check=False,
            env={
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(ROOT),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("content-type", ""),
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""),
                "GIT_PROTOCOL": self.headers.get("git-protocol", ""),
            },
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Path(sys.argv[2]).write_text(str(server.server_port))
server.serve_forever()
