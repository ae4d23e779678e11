"""Becomes root of a user namespace, mounts a sandbox's root there and turns into bubblewrap.

Run as a process of its own, without site packages: its start is part of every sandbox's. The
namespace maps one user, whoever runs the engine, to root. The root is mounted here and not by
bubblewrap because something has to be done between the mount and the first mount *on* it: the
sandbox's last inhabitants may have left links where the system's own file systems go, and
bubblewrap follows links at mount points, at that time still on the host. What is in the way is
moved aside as for level `container`.
"""

import errno
import json
import os
import stat
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from atoll.host import linux
from atoll.runtime.oci import unusable

PLAN: Final = 7
"""Descriptor of the plan; see `main`."""

INFO: Final = 6
"""Descriptor to tell the engine on; bubblewrap's from there on."""

LINK, FILE = "link", "file"

_OPTIONS: Final = "userxattr,index=off,metacopy=off"
"""And ``uuid=on``: by default a copy of a used layer gets no identity of its own."""


def main() -> None:
    """Read the plan and do it.

    It has `group`, `netns`, `lowers`, `upper`, `work`, `root`, `attached`, `targets` and `argv`.
    """
    with os.fdopen(PLAN, "rb") as file:
        plan: dict[str, Any] = json.load(file)
    try:
        if plan["group"]:  # before anything of the sandbox is there
            Path(plan["group"]).write_text("0")
        if plan["netns"]:
            enter_network(plan["netns"])
        enter_namespaces()
        mount_root(plan["lowers"], plan["upper"], plan["work"], plan["root"])
        for target in plan["attached"]:
            if what := obstacle(plan["root"], target):
                os.write(INFO, json.dumps({"refused": target, "what": what}).encode())
                sys.exit(f"{target}: {what}")
        unusable.clear(Path(plan["root"]), plan["targets"])
        os.execve(plan["argv"][0], plan["argv"], {})  # noqa: S606  (what the engine planned)
    except OSError as error:
        sys.exit(f"{error.filename or 'user namespace'}: {error.strerror}")


def obstacle(root: str, target: str) -> str | None:
    """Return what keeps a volume from being mounted at *target* in *root*; None: nothing.

    Unlike what the engine mounts, a volume is at its place or not at all.
    """
    top = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = linux.open_in_root(top, target, links=False)
    except OSError as error:
        return {errno.ELOOP: LINK, errno.ENOTDIR: FILE}.get(error.errno or 0)
    finally:
        os.close(top)
    try:
        return None if stat.S_ISDIR(os.fstat(found).st_mode) else FILE
    finally:
        os.close(found)


def enter_network(path: str) -> None:
    """Enter a network namespace by way of the user namespace that owns it.

    What is made from here on lies below that one, so nobody inside owns the network.
    """
    network = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    owner = linux.owner_of_namespace(network)
    linux.setns(owner, linux.CLONE_NEWUSER)
    linux.setns(network, linux.CLONE_NEWNET)
    os.close(owner)
    os.close(network)


def enter_namespaces() -> None:
    """Become root of a namespace that knows no other user.

    Raises:
        OSError: the host does not let this user make one.
    """
    uid, gid = os.geteuid(), os.getegid()
    linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        Path("/proc/self", name).write_text(text)
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)


def mount_root(lowers: Sequence[str], upper: str, work: str, root: str) -> None:
    """Mount the overlay, by descriptors: the sandbox sees the options, and not where its files are."""
    with ExitStack() as opened:

        def name(path: str) -> str:
            fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.callback(os.close, fd)
            return f"/proc/self/fd/{fd}"

        lower = ":".join(map(name, lowers))
        data = f"lowerdir={lower},upperdir={name(upper)},workdir={name(work)},{_OPTIONS}"
        try:
            _mount(root, f"{data},uuid=on")
        except OSError as error:
            if error.errno != errno.EINVAL:  # kernels before 5.14 do not know it
                raise
            _mount(root, data)


def _mount(root: str, data: str) -> None:
    linux.mount("atoll", root, "overlay", linux.MS_NOSUID | linux.MS_NODEV, data)


if __name__ == "__main__":
    main()
