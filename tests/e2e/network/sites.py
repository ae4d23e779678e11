"""Servers that real clients know how to talk to: files by path, a git repository, packages."""

import gzip
import hashlib
import io
import json
import os
import subprocess
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from e2e.network.internet import Seen, Site


class Answer(NamedTuple):
    """What a site says."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def files(content: Mapping[str, bytes]) -> Site:
    """Return a site that has files by path."""

    def answer(seen: Seen) -> Answer:
        body = content.get(urlsplit(seen.path).path)
        kind = "text/html" if seen.path.endswith("/") else "application/octet-stream"
        return Answer(404 if body is None else 200, {"content-type": kind}, body or b"")

    return answer


def git(root: Path) -> Site:
    """Return a site with the bare repositories in *root*, which take pushes too."""

    def answer(seen: Seen) -> Answer:
        url = urlsplit(seen.path)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(root),
            "GIT_PROJECT_ROOT": str(root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REMOTE_USER": "somebody",
            "PATH_INFO": url.path,
            "QUERY_STRING": url.query,
            "REQUEST_METHOD": seen.method,
            "CONTENT_TYPE": seen.headers.get("content-type", ""),
            "CONTENT_LENGTH": str(len(seen.body)),
            "HTTP_CONTENT_ENCODING": seen.headers.get("content-encoding", ""),
            "GIT_PROTOCOL": seen.headers.get("git-protocol", ""),
        }
        done = subprocess.run(
            ["git", "http-backend"], input=seen.body, capture_output=True, env=environment
        )
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        return Answer(int(fields.pop("Status", "200").split()[0]), fields, body)

    return answer


def repository(root: Path, name: str) -> None:
    """Make a bare repository with one commit."""
    bare, work = root / name, root / "work"
    named = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for argv in (
        ["init", "-q", "--bare", "-b", "main", str(bare)],
        ["init", "-q", "-b", "main", str(work)],
        ["-C", str(work), *named, "commit", "-q", "--allow-empty", "-m", "first"],
        ["-C", str(work), "push", "-q", str(bare), "main"],
        ["-C", str(bare), "config", "http.receivepack", "true"],
    ):
        subprocess.run(["git", *argv], check=True)


def python_index(name: str) -> Site:
    """Return an index with one package, whose only module prints its name."""
    wheel = f"{name}-1.0-py3-none-any.whl"
    folder = f"{name}-1.0.dist-info"
    content = {
        f"{name}.py": f"print('{name} of the index')\n",
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{folder}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{folder}/RECORD": f"{name}.py,,\n{folder}/METADATA,,\n{folder}/WHEEL,,\n{folder}/RECORD,,\n",
    }
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for path, text in content.items():
            archive.writestr(path, text)
    page = f'<a href="/{wheel}">{wheel}</a>'.encode()
    return files({f"/simple/{name}/": page, f"/{wheel}": data.getvalue()})


def npm_registry(name: str, url: str) -> Site:
    """Return a registry at *url* with one package, whose only module prints its name."""
    about = {"name": name, "version": "1.0.0", "main": "index.js"}
    tarball = _tar(
        {
            "package/package.json": json.dumps(about).encode(),
            "package/index.js": f"console.log('{name} of the registry')\n".encode(),
        }
    )
    packed = gzip.compress(tarball, mtime=0)
    dist = {"tarball": f"{url}/{name}-1.0.0.tgz", "shasum": hashlib.sha1(packed).hexdigest()}
    version = about | {"dist": dist}
    document = {"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    return files({f"/{name}": json.dumps(document).encode(), f"/{name}-1.0.0.tgz": packed})


def debian_repository(name: str) -> Site:
    """Return a flat repository with one package, whose only file is ``/opt/<name>``."""
    control = f"Package: {name}\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@b>\n"
    control += "Description: one\n"
    deb = _ar(
        {
            "debian-binary": b"2.0\n",
            "control.tar.gz": gzip.compress(_tar({"./control": control.encode()}), mtime=0),
            "data.tar.gz": gzip.compress(_tar({f"./opt/{name}": b"of the repository\n"}), mtime=0),
        }
    )
    digest = hashlib.sha256(deb).hexdigest()
    packages = f"{control}Filename: ./{name}.deb\nSize: {len(deb)}\nSHA256: {digest}\n".encode()
    listed = f" {hashlib.sha256(packages).hexdigest()} {len(packages)} Packages\n"
    release = f"Date: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n{listed}".encode()
    return files({"/./Packages": packages, "/./Release": release, f"/./{name}.deb": deb,
                  "/Packages": packages, "/Release": release, f"/{name}.deb": deb})  # fmt: skip


def _tar(content: Mapping[str, bytes]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for path, body in content.items():
            member = tarfile.TarInfo(path)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return data.getvalue()


def _ar(content: Mapping[str, bytes]) -> bytes:
    made = b"!<arch>\n"
    for name, body in content.items():
        made += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(body):<10}`\n".encode()
        made += body + b"\n" * (len(body) % 2)
    return made
