"""A registry on loopback, read-only, with images made of a few small files."""

import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def layer(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


class Registry:
    """Its images; blobs and manifests are served by path."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[str, bytes]] = {}
        self.asked: list[str] = []
        self.address = ""

    def add(
        self,
        name: str,
        *layers: bytes,
        config: dict[str, Any] | None = None,
        diff_ids: list[str] | None = None,
        annotations: dict[str, str] | None = None,
    ) -> None:
        """Offer an image with these uncompressed layers as *name*:latest."""
        real = [f"sha256:{hashlib.sha256(data).hexdigest()}" for data in layers]
        document = {
            "architecture": "amd64",
            "os": "linux",
            "config": config or {},
            "rootfs": {
                "type": "layers",
                "diff_ids": diff_ids or real,
            },
            "history": [{"created_by": "test"} for _ in layers],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": self._blob(name, _CONFIG, json.dumps(document).encode()),
            "layers": [self._blob(name, _LAYER, gzip.compress(data)) for data in layers],
            "annotations": annotations or {},
        }
        data = json.dumps(manifest).encode()
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        for tag in ("latest", digest):
            self.answers[f"/v2/{name}/manifests/{tag}"] = (_MANIFEST, data)

    def replace(self, name: str, old: bytes, new: bytes) -> None:
        """Have the documents of *name* say something else; digests that name them lie from then on."""
        for path, (kind, data) in list(self.answers.items()):
            if path.startswith(f"/v2/{name}/"):
                self.answers[path] = (kind, data.replace(old, new))

    def _blob(self, name: str, media_type: str, data: bytes) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.answers[f"/v2/{name}/blobs/{digest}"] = ("application/octet-stream", data)
        return {"mediaType": media_type, "digest": digest, "size": len(data)}


@contextmanager
def serve() -> Iterator[Registry]:
    registry = Registry()
    registry.answers["/v2/"] = ("application/json", b"{}")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            registry.asked.append(self.path)
            unknown = b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}'
            known = self.path in registry.answers
            kind, data = registry.answers.get(self.path, ("application/json", unknown))
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: Any) -> None:
            """Keep the test's output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    registry.address = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
