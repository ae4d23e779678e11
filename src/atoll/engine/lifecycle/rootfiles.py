"""The few files every sandbox gets from the engine: host names and resolvers.

They are bound read-only over the image's own, from the directory of this start: a writable one
would be space on the host outside the sandbox's disk limit.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

from atoll.runtime.base import Mount


def resolv_conf(nameservers: Iterable[str]) -> str:
    """Return the resolver configuration."""
    return "".join(f"nameserver {server}\n" for server in nameservers)


def hosts(hostname: str, address: str | None) -> str:
    """Return the hosts file: loopback, and the sandbox's own name."""
    own = f"{address or '127.0.1.1'}\t{hostname}\n"
    return "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" + own


def write(
    directory: Path, *, hostname: str, address: str | None, nameservers: Iterable[str]
) -> tuple[Mount, ...]:
    """Write the files to *directory* and return their mounts."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    contents = {
        "resolv.conf": resolv_conf(nameservers),
        "hosts": hosts(hostname, address),
    }
    for name, text in contents.items():
        (directory / name).write_text(text)
    return tuple(Mount(source=directory / name, target=f"/etc/{name}") for name in contents)


def rename(directory: Path, *, hostname: str, address: str | None) -> None:
    """Write the hosts file anew, in place: it is bound into a sandbox that runs. Blocking."""
    (directory / "hosts").write_text(hosts(hostname, address))


def own_copy(directory: Path, source: Path, target: str) -> Mount:
    """Return the mount of a copy of *source*, in the *directory* of this start, at *target*.

    A file that two sandboxes have in common is a channel between them: a lock that one takes, or a
    read that it watches, shows in the other. Blocking.
    """
    copy = directory / source.name
    shutil.copytree(source, copy, dirs_exist_ok=True)
    return Mount(source=copy, target=target)
