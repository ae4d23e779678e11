"""Hostile images: each sandbox starts, or is refused by name, in its time; nothing happens outside.

Every image is a whole one with something in it that is there to harm who unpacks, mounts or starts it.
"""

import gzip
import hashlib
import io
import os
import secrets
import shutil
import stat
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from atoll.host import trees
from e2e.hosts import SANDBOXES, Host, run
from e2e.images.registry import Registry, serve

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

LARGEST = 600
"""MB of an image."""

LATEST = 60.0
"""Seconds for pull, start, command and end of one; they take half a second on a quiet machine."""


class Member(tarfile.TarInfo):
    """A member of an archive with its content."""

    def __init__(
        self, name: str, content: bytes = b"", *, kind: bytes = tarfile.REGTYPE, to: str = "",
        mode: int = 0o755, headers: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name)
        self.content, self.size = content, len(content)
        self.type, self.linkname, self.mode = kind, to, mode
        self.devmajor, self.devminor = 1, 3
        self.pax_headers = headers or {}


def link(name: str, to: str) -> Member:
    return Member(name, kind=tarfile.SYMTYPE, to=to)


def folder(name: str) -> Member:
    return Member(name, kind=tarfile.DIRTYPE)


def archive(*members: Member) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(member.content))
    return buffer.getvalue()


PASSWD = b"root:x:0:0:root:/root:/bin/sh\n"


def usual() -> bytes:
    """One static program, and what every image has."""
    busybox = Path(shutil.which("busybox") or "").read_bytes()
    return archive(
        Member("bin/busybox", busybox), link("bin/sh", "busybox"),
        Member("etc/passwd", PASSWD), Member("etc/group", b"root:x:0:\n"), folder("tmp"),
    )  # fmt: skip


CAPABILITY = "\x01\0\0\x02" + "\x7f" * 8 + "\0" * 8
"""``security.capability`` of version 2 with everything."""

OUTSIDE = "OUTSIDE"
"""In a link: a folder of the host."""

LEADING = [f"{OUTSIDE}/made", f"../../../../../../../..{OUTSIDE}/made", f"/proc/1/root{OUTSIDE}/made",
           f"/proc/self/root{OUTSIDE}/made", "/dev/zero", "/proc/1/mem", "loop"]  # fmt: skip
NAMED = ("resolv.conf", "hosts", "hostname", "machine-id", "passwd", "group")
LAYERS: dict[str, list[Member]] = {
    "set-id and capabilities": [
        Member("bin/suid", mode=0o6777),
        Member("bin/capable", headers={"SCHILY.xattr.security.capability": CAPABILITY}),
        Member("bin/su", b"#!/bin/busybox sh\nid -u\n", mode=0o4755),
    ],
    "device nodes": [
        Member(name, kind=kind, mode=0o666)
        for name, kind in (("disk", tarfile.BLKTYPE), ("memory", tarfile.CHRTYPE),
                           ("pipe", tarfile.FIFOTYPE), ("etc/resolv.conf", tarfile.CHRTYPE))
    ],
    "passwd of megabytes": [Member("etc/passwd", PASSWD + b"x" * (32 << 20))],
    "binary passwd": [Member("etc/passwd", bytes(range(256)) * 64)],
    "passwd without root": [Member("etc/passwd", b"x:x:1:1::/:/bin/sh\n")],
    "passwd of large ids": [Member("etc/passwd", b"root:x:9999999999:4294967295::/:/bin/sh\n")],
    "passwd is a folder": [Member(".wh.passwd"), folder("etc/passwd")],
    "passwd is a pipe": [Member("etc/passwd", kind=tarfile.FIFOTYPE)],
    "a broken libc": [
        *(Member(f"{top}/{name}", b"\x7fELF" + b"\xff" * 4_000)
          for top in ("lib", "lib64", "lib/x86_64-linux-gnu", "usr/lib")
          for name in ("libc.so.6", "ld-linux-x86-64.so.2", "libpthread.so.0")),
        Member("etc/ld.so.preload", b"/lib/libc.so.6\n"), Member("etc/ld.so.cache", b"\xff" * 999),
        Member("etc/nsswitch.conf", b"passwd: evil\n"),
    ],
    "no shell": [Member("bin/.wh.sh")],
    "no etc, no tmp": [Member(".wh.etc"), Member(".wh.tmp")],
    "tmp is a file": [Member(".wh.tmp"), Member("tmp", b"x")],
    "mount points are files": [Member(name, b"x") for name in ("proc", "sys", "dev", "workspace")],
    "mount points lead out": [link(name, OUTSIDE) for name in ("proc", "sys", "dev", "workspace")],
    "etc leads out": [Member(".wh.etc"), link("etc", OUTSIDE)],
    "the agent's place is taken": [link("dev/.atoll", OUTSIDE), Member("dev/.atoll2/bin/python")],
    "deep folders": [folder("d/" * 1_200 + "end")],
    "names that are no text": [Member("etc/\udcff\udcfe\n\x1b[2J"), folder("\udc80")],
    "hidden by whiteouts": [Member("bin/.wh.busybox2"), Member("etc/.wh..wh..opq"),
                            Member("etc/passwd", PASSWD), Member(".wh..wh.plnk/1.2")],
    "overlay's own attributes": [
        Member("etc", kind=tarfile.DIRTYPE, headers={
            "SCHILY.xattr.trusted.overlay.redirect": "/bin",
            "SCHILY.xattr.trusted.overlay.opaque": "y",
        })
    ],
    **{f"names of etc lead to {to}": [link(f"etc/{name}", to) for name in NAMED] for to in LEADING},
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "variables of the loader": {"Env": [
        "LD_PRELOAD=/evil.so", "LD_LIBRARY_PATH=/lib", "PYTHONPATH=/evil", "PYTHONSTARTUP=/evil",
        "GCONV_PATH=/evil", "PATH=", "HOME=/proc/1", "BASH_ENV=/evil", "=x", "A=\x00", "x" * 70_000,
    ]},
    "a user that is nobody's": {"User": "9999999999:-1"},
    "a user of many colons": {"User": "root:root:root:" + "x" * 100_000},
    "a folder that leads up": {"WorkingDir": "/../../.." + OUTSIDE},
    "a folder in proc": {"WorkingDir": "/proc/1/root"},
    "a folder of no end": {"WorkingDir": "/" + "d/" * 50_000},
    "commands that are none": {"Entrypoint": ["/evil", "\0"], "Cmd": [1, None], "Shell": "x"},
    "ports without number": {"ExposedPorts": {str(n): {} for n in range(70_000)}},
    "other types": {"Env": {"A": 1}, "User": ["root"], "WorkingDir": 7, "Volumes": {"/": {}, "/etc": {}}},
}  # fmt: skip

IN_SHORT = {
    "mount points lead out",
    f"names of etc lead to {LEADING[0]}",
    "digests of layers that lie",
}


def cases(table: Iterable[str]) -> list[Any]:
    """All of them, of which few are in the short run: each takes about a second."""
    marks = {name: () if name in IN_SHORT else (pytest.mark.slow,) for name in table}
    return [pytest.param(name, marks=mark) for name, mark in marks.items()]


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with serve() as made:
        yield made


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    if os.geteuid():
        pytest.skip("needs root")
    host = Host()
    cache, limit = str(host.state_dir / "cache"), str(LARGEST)
    engine = host.start(ATOLL_STORAGE_CACHE_DIR=cache, ATOLL_IMAGES_MAX_IMAGE_MB=limit)
    with engine.client() as client:
        yield client
    trees.remove(host.state_dir / "cache")  # deeper than `shutil` goes
    host.close()


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder in which nothing may change."""
    tmp_path.chmod(0o755)
    made = tmp_path / "outside"
    made.mkdir()
    made.chmod(0o777)
    (made / "kept").write_text("kept")
    before = _state(made)
    yield made
    assert _state(made) == before


def _state(top: Path) -> list[tuple[str, int, int]]:
    return [
        (str(path), path.stat().st_ctime_ns, path.stat().st_mode) for path in (top, *top.rglob("*"))
    ]


def start(
    client: httpx2.Client,
    registry: Registry,
    *members: Member,
    layers: Sequence[bytes] = (),
    config: dict[str, Any] | None = None,
) -> tuple[str, httpx2.Response]:
    """Start a sandbox of an image; return its address, and the answer."""
    name = "hostile-" + secrets.token_hex(4)
    registry.add(name, usual(), *layers, *([archive(*members)] if members else []), config=config)
    url = f"{SANDBOXES}/{name}"
    image = {"image": f"{registry.address}/{name}"}
    assert client.put(url, json=image).is_success
    return url, client.post(url + "/start", json={}, timeout=400)


def placed(members: list[Member], outside: Path) -> list[Member]:
    for member in members:
        member.linkname = member.linkname.replace(OUTSIDE, str(outside))
    return members


def check(client: httpx2.Client, url: str, answer: httpx2.Response) -> None:
    """It runs what does not depend on the image, and says in its own words why it does not the rest."""
    try:
        assert answer.is_success, answer.text
        for user in ("0:0", "1000:1000"):
            command = {"command": ["/bin/busybox", "echo", "ok"], "user": user, "cwd": "/"}
            told = client.post(url + "/exec", json=command)
            assert told.is_success, told.text
            assert told.json()["stdout"] == "ok\n"
        not_fatal(client.post(url + "/exec", json={"command": "echo ok"}))
        for path in ("/etc/passwd", "/etc/resolv.conf", "/workspace", "/tmp"):
            for place in ("/files", "/files/list", "/files/stat"):
                not_fatal(client.get(url + place, params={"path": path}))
    finally:
        assert client.delete(url, timeout=100).is_success


def not_fatal(answer: httpx2.Response) -> None:
    """An error is one that says what is wrong, at no great length."""
    if answer.is_error:
        body = answer.json()
        assert body["code"] != "INTERNAL_ERROR", body
        assert body["message"]
        assert len(answer.content) < 1 << 16


@pytest.mark.parametrize("name", cases(LAYERS))
def test_a_hostile_layer(
    client: httpx2.Client, registry: Registry, outside: Path, name: str
) -> None:
    began = time.monotonic()
    check(client, *start(client, registry, *placed(LAYERS[name], outside)))
    assert time.monotonic() - began < LATEST


@pytest.mark.parametrize("name", cases(CONFIGS))
def test_a_hostile_configuration(
    client: httpx2.Client, registry: Registry, outside: Path, name: str
) -> None:
    config = {
        key: value.replace(OUTSIDE, str(outside)) if isinstance(value, str) else value
        for key, value in CONFIGS[name].items()
    }
    began = time.monotonic()
    check(client, *start(client, registry, config=config))
    assert time.monotonic() - began < LATEST


def test_no_image_gives_a_user_more_rights(client: httpx2.Client, registry: Registry) -> None:
    busybox = Path(shutil.which("busybox") or "").read_bytes()
    everything = {"SCHILY.xattr.security.capability": CAPABILITY}
    url, answer = start(
        client, registry, Member("bin/id", busybox, mode=0o6755),
        Member("bin/cat", busybox, headers=everything),
    )  # fmt: skip
    assert answer.is_success, answer.text
    for command, wanted in ((["/bin/id", "-u"], "1000\n"), (["/bin/cat", "/proc/self/status"], "")):
        told = client.post(url + "/exec", json={"command": command, "user": "1000:1000"}).json()
        if wanted:
            assert told["stdout"] == wanted
        else:
            held = [line.split() for line in told["stdout"].splitlines() if line.startswith("CapE")]
            assert [int(value, 16) for _, value in held] in ([0], [])
    assert client.delete(url, timeout=100).is_success


@pytest.mark.slow
def test_a_device_of_an_image_is_none(client: httpx2.Client, registry: Registry) -> None:
    url, answer = start(client, registry, Member("disk", kind=tarfile.BLKTYPE))
    assert answer.is_success, answer.text
    assert run(client, url, "/bin/busybox", "ls", "/disk")["exitCode"] == 1
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert client.delete(url, timeout=100).is_success


def bomb() -> bytes:
    """A thousand times what it is packed."""
    return archive(Member("zeros", bytes(700 << 20)))


def lying_layer(registry: Registry, name: str) -> None:
    registry.add(name, usual(), archive(Member("said", b"1")))
    path, (kind, data) = next(
        (path, answer) for path, answer in registry.answers.items()
        if path.startswith(f"/v2/{name}/blobs/") and b"said" in _plain(answer[1])
    )  # fmt: skip
    registry.answers[path] = (kind, gzip.compress(_plain(data).replace(b"said", b"lies")))


def _plain(data: bytes) -> bytes:
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else b""


def lying_configuration(registry: Registry, name: str) -> None:
    registry.add(name, usual(), config={"Cmd": ["said"]})
    registry.replace(name, b"said", b"lies")


def lying_diff_ids(registry: Registry, name: str) -> None:
    other = hashlib.sha256(b"another").hexdigest()
    registry.add(name, usual(), diff_ids=[f"sha256:{other}"])


REFUSED: dict[str, Callable[[Registry, str], None]] = {
    "a bomb": lambda registry, name: registry.add(name, usual(), bomb()),
    "layers that add up": lambda registry, name: registry.add(
        name, *(archive(Member(f"zeros{n}", bytes(140 << 20))) for n in range(5))
    ),
    "hundreds of layers": lambda registry, name: registry.add(
        name, *(archive(Member(f"a{n}")) for n in range(300))
    ),
    "a layer that lies": lying_layer,
    "a configuration that lies": lying_configuration,
    "digests of layers that lie": lying_diff_ids,
    "a huge configuration": lambda registry, name: registry.add(
        name, usual(), config={"Labels": {"a": "x" * (64 << 20)}}
    ),
    "a huge manifest": lambda registry, name: registry.add(
        name, usual(), annotations={"a": "x" * (64 << 20)}
    ),
    "a huge attribute": lambda registry, name: registry.add(
        name, usual(), archive(Member("a", headers={"SCHILY.xattr.user.a": "x" * (900 << 10)}))
    ),
    "a hard link to the host": lambda registry, name: registry.add(
        name, archive(link("a", "/etc"), Member("b", kind=tarfile.LNKTYPE, to="a/passwd"))
    ),
    "a hard link upwards": lambda registry, name: registry.add(
        name, archive(Member("b", kind=tarfile.LNKTYPE, to="../../../../../../etc/passwd"))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", cases(REFUSED))
def test_what_cannot_be_an_image_is_refused(
    client: httpx2.Client, registry: Registry, tmp_path: Path, name: str
) -> None:
    tag = "refused-" + secrets.token_hex(4)
    REFUSED[name](registry, tag)
    url = f"{SANDBOXES}/{tag}"
    began = time.monotonic()
    assert client.put(url, json={"image": f"{registry.address}/{tag}"}).is_success
    answer = client.post(url + "/start", json={})
    not_fatal(answer)
    assert answer.json()["code"] in {"INVALID_IMAGE", "IMAGE_PULL_FAILED"}, answer.text
    assert time.monotonic() - began < LATEST
    assert client.delete(url, timeout=100).is_success


def million() -> bytes:
    """An archive of a million empty files, in a thousand folders."""
    head = bytearray(tarfile.TarInfo("d000/000000").tobuf())
    rest, checksum = bytes(head[11:148]), int(head[148:154], 8)
    end = bytes(head[156:])
    pieces = []
    for number in range(1_000_000):
        name = b"d%03d/%06d" % (number // 1_000, number)
        changed = checksum + sum(name) - sum(b"d000/000000")
        pieces.append(b"%b%b%06o\0 %b" % (name, rest, changed, end))
    return b"".join((*pieces, bytes(1024)))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_image_of_a_million_files(client: httpx2.Client, registry: Registry) -> None:
    """It takes its time, in which the engine answers others."""
    layer = million()
    with ThreadPoolExecutor() as threads:
        starting = threads.submit(start, client, registry, layers=[layer])
        longest = 0.0
        while not starting.done():
            began = time.monotonic()
            assert client.get(SANDBOXES).is_success
            longest = max(longest, time.monotonic() - began)
            time.sleep(0.05)
    url, answer = starting.result()
    check(client, url, answer)
    assert longest < 5
