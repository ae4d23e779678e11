"""4, 5, 7, 15 and 18: links, archives and mounts that lead out of where they belong."""

import io
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from atoll.errors import NotSupportedByRuntimeError, SandboxError
from atoll.probes.box import Box, result
from atoll.probes.site import BRIDGED, NAMESPACE, Site, canary

_WATCHED = ("/", "/etc", "/tmp", "/root", "/usr", "/var")
_SWAPS_SECONDS = 1.0


def target_swap(site: Site) -> list[str]:
    """4: a folder that became a link to elsewhere is no target of anything."""
    box = site.box(BRIDGED)
    marker = canary()
    backup = _backup_with(box, marker)
    box.sh("rm -rf /workspace/up; ln -s / /workspace/up; ln -s / /workspace/link")
    before = _listing(box)
    tries: dict[str, Callable[[], object]] = {
        "upload": lambda: _upload(box, _archive(marker), "/workspace/up"),
        "restore": lambda: _restore(box, backup, "/workspace/up"),
        "restore below": lambda: _restore(box, backup, "/workspace/link/etc"),
        "mount": lambda: _mount(box, "/workspace/link/etc"),
        "volume": lambda: _attach(site, box, "/workspace/link/etc"),
    }
    found = [name for name, attempt in tries.items() if _succeeds(attempt)]
    box.sh("rm -rf /workspace && ln -s / /workspace")
    if _succeeds(lambda: _hydrate(box, _archive(marker))):
        found.append("hydrate")
    if (after := _listing(box)) != before:
        found.append(f"changed: {sorted(set(after) ^ set(before))[:3]}")
    return found + _on_the_host(marker)


def _backup_with(box: Box, name: str) -> str:
    box.sh(f"mkdir -p /workspace/up && echo x >/workspace/up/{name}")
    wanted = {"dir": "/workspace/up", "compression": "none"}
    return str(box.told("POST", "/backups", json=wanted)["id"])


def _listing(box: Box) -> list[str]:
    """Names and modes of all that is there, with what it is a link to."""
    script = "; ".join(f"cd {top}; stat -c '%N %A %u {top}' .[!.]* *" for top in _WATCHED)
    listed = box.sh(f"({script}) 2>/dev/null").splitlines()
    return [line for line in listed if not line.startswith(("'proc'", "'workspace'"))]


def _upload(box: Box, body: bytes, path: str) -> object:
    return box.told("PUT", "/files/archive", params={"path": path}, content=body)


def _hydrate(box: Box, body: bytes, path: str = "/workspace") -> object:
    """Unpack by the bridge, which has one place for it."""
    del path
    return result(box.client.post(f"/v1/sandbox/{box.id}/hydrate", content=body))


def _restore(box: Box, backup: str, folder: str) -> object:
    return box.told("POST", "/backups/restore", json={"backup": backup, "dir": folder})


def _mount(box: Box, path: str) -> object:
    credentials = {"accessKeyId": "a", "secretAccessKey": "b"}
    wanted = {"path": path, "bucket": "probe", "endpoint": "http://192.0.2.1"}
    return box.told("POST", "/mounts", json=wanted | {"credentials": credentials})


def _attach(site: Site, box: Box, path: str) -> object:
    """Attach a volume there; the sandbox runs again afterwards, with it or without."""
    result(site.client.post(f"/v2/namespaces/{box.namespace}/volumes", json={"name": "probe"}))
    try:
        box.told("PUT", json={"volumes": {path: "probe"}})
        box.told("POST", "/stop", json={})
        return box.told("POST", "/start", json={})
    finally:
        box.ask("PUT", json={"volumes": {}})
        box.told("POST", "/start", json={})


def _succeeds(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except SandboxError:
        return False
    return True


def _on_the_host(name: str) -> list[str]:
    """Where a file of this *name* is that nothing on the host should have made."""
    return [f"{top}/{name} on the host" for top in _WATCHED if _is_there(Path(top, name))]


def _is_there(path: Path) -> bool:
    """Where this user may not even look, nothing of this user's was made either."""
    try:
        return path.exists()
    except PermissionError:
        return False


def archive_members(site: Site) -> list[str]:
    """5: no member of an archive leaves the folder it is unpacked into, or is more than a file."""
    box = site.box(BRIDGED)
    marker = canary()
    before = _listing(box)
    found = []
    for name, body in _hostile_archives(marker):
        for way in (_upload, _hydrate):
            box.sh("rm -rf /workspace/*")
            _succeeds(lambda way=way, body=body: way(box, body, "/workspace/up"))  # type: ignore[misc]
            found += [f"{name} by {way.__name__[1:]}: {what}" for what in _came_of(box)]
    if (after := _listing(box)) != before:
        found.append(f"changed: {sorted(set(after) ^ set(before))[:3]}")
    return found + _on_the_host(marker)


_LOOK = """
cd /workspace
find . -type b -o -type c -o -type p | sed 's/^/special file /'
find . -type f -perm /6000 | sed 's/^/setuid /'
find . -type f -links +1 -samefile /etc/passwd 2>/dev/null | sed 's/^/hard link /'
"""


def _came_of(box: Box) -> list[str]:
    return box.sh(_LOOK).splitlines()


def _hostile_archives(marker: str) -> Iterator[tuple[str, bytes]]:
    yield "parent", _archive(f"../../etc/{marker}")
    yield "absolute", _archive(f"/etc/{marker}")
    yield "through a link", _archive(("out", tarfile.SYMTYPE, "/etc"), f"out/{marker}")
    yield "through a relative link", _archive(("out", tarfile.SYMTYPE, "../../etc"),
                                              f"out/{marker}")  # fmt: skip
    yield "character device", _archive((marker, tarfile.CHRTYPE, ""))
    yield "block device", _archive((marker, tarfile.BLKTYPE, ""))
    yield "pipe", _archive((marker, tarfile.FIFOTYPE, ""))
    yield "setuid", _archive((marker, tarfile.REGTYPE, ""), mode=0o6755)
    yield "hard link", _archive((marker, tarfile.LNKTYPE, "/etc/passwd"))
    yield "hard link up", _archive((marker, tarfile.LNKTYPE, "../../etc/passwd"))


def _archive(*members: Any, mode: int = 0o644) -> bytes:
    """Return a tar of *members*: names of empty files, or (name, type, link)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member in members:
            name, kind, link = (
                member if isinstance(member, tuple) else (member, tarfile.REGTYPE, "")
            )
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mode = kind, link, mode
            info.devmajor, info.devminor = 1, 3
            archive.addfile(info)
    return buffer.getvalue()


def image_unchanged(site: Site) -> list[str]:
    """7: what root adds to files of its image, another sandbox of that image does not see."""
    a, b = site.box(), site.box()
    files = b.sh("find /bin/ /etc /usr/bin /lib/ -type f 2>/dev/null | sort | head -n 200").split()
    before = b.sh("md5sum " + " ".join(files))
    marker = canary()
    a.python(_OVERWRITE.format(files=files, marker=marker))
    fresh = site.box()
    seen = [box.sh("md5sum " + " ".join(files)) for box in (b, fresh)]
    return [f"files of {name} changed" for name, now in
            zip(("a neighbour", "the image"), seen, strict=True) if now != before]  # fmt: skip


_OVERWRITE = """
for path in {files!r}:
    try:
        with open(path, "ab") as file:
            file.write({marker!r}.encode())
    except OSError:
        pass
"""


def read_only_volumes(site: Site) -> list[str]:
    """15: a volume that is read-only stays as it is on the host, whatever root inside does."""
    place = f"/v2/namespaces/{NAMESPACE}/volumes"
    result(site.client.post(place, json={"name": "kept", "readOnly": True}))
    result(site.client.put(f"{place}/kept/files", params={"path": "file"}, content=b"before"))
    box = site.box(volumes={"/kept": "kept"})
    told = box.python(_WRITE_ANYWAY)
    kept = site.client.get(f"{place}/kept/files", params={"path": "file"}).content
    listed = result(site.client.get(f"{place}/kept/files/list"))["files"]
    found = [] if kept == b"before" and len(listed) == 1 else ["the volume has changed"]
    return found + ([] if "30" in told.split() else [f"no EROFS but {told.strip()}"])


def limit_of_a_volume(site: Site, size: int = 20_000_000) -> list[str]:
    """19: root inside brings no more into a volume than its limit, by no kind of folder.

    Raises:
        NotSupportedByRuntimeError: this level has no such limit.
    """
    place = f"/v2/namespaces/{NAMESPACE}/volumes"
    result(site.client.post(place, json={"name": "small", "size": size}))
    box = site.box(volumes={"/small": "small"})
    if box.told("GET")["isolation"] == "bwrap":
        raise NotSupportedByRuntimeError("volumes are not limited at level 'bwrap'")
    told = box.python(_FILL)
    made, written = told.splitlines()[:-1], int(told.splitlines()[-1])
    return made + ([f"wrote {written} bytes"] if written > 30_000_000 else [])


_FILL = """
import fcntl, os, struct
for name, request, content in (
    ("subvolume", 0x5000940E, struct.pack("q4088s", 0, b"made-1")),
    ("subvolume of version 2", 0x50009418, struct.pack("q48s4040s", 0, b"", b"made-2")),
    ("snapshot", 0x50009401, struct.pack("q4088s", 3, b"made-3")),
):
    folder = os.open("/small", os.O_RDONLY)
    try:
        fcntl.ioctl(folder, request, bytearray(content))
    except OSError:
        pass
    else:
        print("made a", name)
    os.close(folder)
written = 0
for top in ("/small", *(entry.path for entry in os.scandir("/small") if entry.is_dir())):
    try:
        with open(top + "/file", "wb", buffering=0) as file:
            for _ in range(64):
                written += file.write(os.urandom(1 << 20))
            os.fsync(file.fileno())
    except OSError:
        pass
print(written)
"""
_WRITE_ANYWAY = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for flags in (32, 32 | 4096, 4096, 16384):
    libc.mount(b"/kept", b"/kept", None, ctypes.c_ulong(flags), None)
for name, mode in (("file", "wb"), ("file", "ab"), ("new", "wb")):
    try:
        open("/kept/" + name, mode).write(b"after")
    except OSError as error:
        print(error.errno)
try:
    os.chmod("/kept/file", 0o777)
except OSError as error:
    print(error.errno)
"""


def links(site: Site) -> list[str]:
    """18: a link that names a file of the host leads to a file inside, or nowhere."""
    secret = canary()
    with tempfile.TemporaryDirectory(prefix="atoll-probe-host-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "secret").write_text(secret)
        (folder / "secret").chmod(0o666)
        box = site.box()
        box.sh(_LINKS.format(folder=folder))
        found = [*_read_out(box, secret), *_written_out(box)]
        found += _swapped(box, folder)
        if sorted(path.name for path in folder.iterdir()) != ["secret"]:
            found.append("a file was made on the host")
        if (folder / "secret").read_text() != secret:
            found.append("a file of the host was changed")
    return found


_LINKS = """
mkdir -p /workspace/l && cd /workspace/l
ln -s {folder}/secret absolute
ln -s ../../../../../../../..{folder}/secret relative
ln -s /proc/1/root{folder}/secret by-root
ln -s /proc/self/root{folder}/secret by-self
ln -s /proc/1/cwd/..{folder}/secret by-cwd
ln -s {folder}/new dangling
ln -s {folder} folder
"""


def _read_out(box: Box, secret: str) -> Iterator[str]:
    for link in ("absolute", "relative", "by-root", "by-self", "by-cwd", "folder/secret"):
        answer = box.ask("GET", "/files", params={"path": f"/workspace/l/{link}"})
        if secret in answer.text:
            yield f"read through {link}"
    answer = box.ask("GET", "/files/archive", params={"path": "/workspace/l"})
    if secret in answer.text:
        yield "read by a download"


def _written_out(box: Box) -> Iterator[str]:
    """Write through each; the probe looks at the host afterwards."""
    for link in ("absolute", "relative", "by-root", "by-self", "by-cwd", "dangling", "folder/new"):
        params = {"path": f"/workspace/l/{link}"}
        box.ask("PUT", "/files", params=params, content=b"written")
        box.ask("PUT", "/files", params=params | {"append": "true"}, content=b"written")
    yield from ()


_SWAP = """
cd /workspace/s || exit
while [ ! -e stop ]; do
    mkdir p; rmdir p; ln -s {folder} p; rm p; ln -s /proc/1/root{folder} p; rm p
done 2>/dev/null
"""


def _swapped(box: Box, folder: Path) -> list[str]:
    """Write below a parent that becomes a link meanwhile."""
    box.sh("mkdir -p /workspace/s")
    script = _SWAP.format(folder=folder)
    box.told("POST", "/processes", json={"command": script, "processId": "swap"})
    end = time.monotonic() + _SWAPS_SECONDS
    while time.monotonic() < end:
        box.ask("PUT", "/files", params={"path": "/workspace/s/p/file"}, content=b"x")
    box.sh("touch /workspace/s/stop")
    return []
