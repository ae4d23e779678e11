"""17: what of a bucket lies beside the part that a sandbox was given.

A folder of this host stands for the bucket: the program that asks for it holds a lease of the engine.
"""

import json
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from atoll.probes.box import Box
from atoll.probes.site import Site, canary

_AT = "/mnt/bucket"
_BINDING = "PROBE"
_OUT = (
    "mine/../theirs",
    "../mine",
    "..",
    "mine/..",
    "%2e%2e",
    "mine/..%2ftheirs",
    "a\0b",
    "./theirs",
)
"""Prefixes that name something else than a part of the bucket."""


def boundary(site: Site, prefix: str = "mine") -> list[str]:
    """17: of a mounted part of a bucket nothing leads to another part, or to the host.

    Args:
        site: where.
        prefix: of the part.
    """
    secret = canary()
    with _bucket(site, secret) as folder:
        box = site.box()
        _mount(box, prefix)
        found = [*_read(box, secret), *_written(box, folder)]
        box.told("DELETE", "/mounts", params={"path": _AT})
        found += [f"prefix {out!r}" for out in _OUT if _leads_out(box, out, secret)]
        box.told("DELETE")
        beside = {path.name for path in folder.parent.iterdir()} - {folder.name, "secret"}
    return found + [f"made {name} on the host" for name in sorted(beside)]


@contextmanager
def _bucket(site: Site, secret: str) -> Iterator[Path]:
    """Have a bucket with the parts ``mine`` and ``theirs`` in a folder with another secret."""
    top = Path(tempfile.mkdtemp(prefix="atoll-probe-bucket-"))
    folder = top / "bucket"
    for part in ("mine", "theirs"):
        (folder / part).mkdir(parents=True)
    for path in (top / "secret", folder / "secret", folder / "theirs/secret"):
        path.write_text(secret)
    (folder / "mine/own").write_text("own")
    try:
        with socket.socket(socket.AF_UNIX) as lease:
            lease.connect(str(site.state_dir / "lease.sock"))
            offer = {"localBuckets": {_BINDING: str(folder)}}
            lease.sendall(json.dumps(offer).encode() + b"\n")
            _lines(lease, 2)
            yield folder
    finally:
        shutil.rmtree(top)


def _lines(peer: socket.socket, count: int) -> None:
    told = b""
    while told.count(b"\n") < count:
        told += peer.recv(1 << 12)


def _mount(box: Box, prefix: str) -> None:
    wanted = {"path": _AT, "bucket": _BINDING, "localBucket": True, "prefix": prefix}
    box.told("POST", "/mounts", json=wanted)


_READ = """
cd {at} || exit
for up in .. ../.. '..%2f' '%2e%2e' './..' own/.. own/../.. .; do
    for name in secret theirs/secret bucket/theirs/secret; do
        case $(cat "$up/$name" 2>/dev/null) in {secret}) echo "read $name";; esac
    done
done
ln -s ../theirs to-theirs; ln -s ../../secret to-host
for name in to-theirs/secret to-host; do
    case $(cat $name 2>/dev/null) in {secret}) echo "read $name";; esac
done
ls -a . | grep -x theirs | sed 's/^/listed /'
"""


def _read(box: Box, secret: str) -> list[str]:
    return sorted(set(box.sh(_READ.format(at=_AT, secret=secret)).splitlines()) & _FOUND)


_FOUND = {
    *(f"read {name}" for name in ("secret", "theirs/secret", "bucket/theirs/secret",
                                  "to-theirs/secret", "to-host")),
    "listed theirs",
}  # fmt: skip
"""What of the script's output counts; the rest is errors of the shell."""

_WRITE = """
cd {at} || exit
for place in theirs ../theirs ..%2ftheirs to-theirs; do
    echo x >"$place/written"; cp own "$place/copied"; mv own "$place/moved"; ln own "$place/linked"
done
echo x >../written; mknod device c 1 3; mkfifo pipe
"""


def _written(box: Box, folder: Path) -> Iterator[str]:
    box.sh(_WRITE.format(at=_AT))
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            yield f"made the link or device {name}"
        elif path.is_file() and name.startswith("theirs/") and path.name != "secret":
            yield f"wrote {name}"


def _leads_out(box: Box, prefix: str, secret: str) -> bool:
    """Whether a part of that name is anything that was there."""
    answer = box.ask("POST", "/mounts", json={
        "path": _AT, "bucket": _BINDING, "localBucket": True, "prefix": prefix,
    })  # fmt: skip
    if answer.is_error:
        return answer.status_code >= 500
    seen = box.sh(f"cat {_AT}/secret {_AT}/*/secret")
    box.told("DELETE", "/mounts", params={"path": _AT})
    return secret in seen
