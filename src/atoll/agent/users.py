"""Users of the image, read from /etc/passwd and /etc/group as text.

Never by NSS: it would load libraries of the image into the agent. Both files belong to the
sandbox and may be anything; a line that makes no sense is skipped.
"""

import os
import stat
from collections.abc import Iterator
from typing import Final, NamedTuple

from atoll import errors

MAX_FILE: Final = 1 << 20
"""Bytes read of either file."""

MAX_GROUPS: Final = 1024
"""Supplementary groups of one user; the kernel takes 65,536."""

MAX_ID: Final = 0xFFFF_FFFE
"""Largest id: (uid_t)-1 means "leave it" to the kernel."""


def refused() -> errors.SandboxError:
    """Return the error for ids that the kernel does not let a process take."""
    return errors.NotSupportedByRuntimeError(
        "the sandbox cannot run anything as this user: it does not have its ids",
        suggestion="at level bwrap root is the only user; other levels have ids below 65,536",
    )


class User(NamedTuple):
    """Whom a command runs as."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    name: str
    home: str
    shell: str


class Account(NamedTuple):
    """One line of /etc/passwd."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str


def lookup(user: str, passwd: str, group: str) -> User:
    """Return the ids, groups and home of *user*: a name, a uid, or either with ``:group``.

    As container engines do it: an explicit group replaces the supplementary ones, and a number
    that /etc/passwd does not know has group 0.

    Raises:
        ValidationFailedError: the name is unknown, or a number is out of range.
    """
    name, separator, group_name = user.partition(":")
    account = _find_account(name, passwd)
    if account is None and not _is_id(name):
        raise _unknown("user", name)
    uid = account.uid if account else _number(name)
    gid = account.gid if account else 0
    login = account.name if account else ""
    groups = {gid, *_memberships(login, group)}
    if separator:
        gid = _find_group(group_name, group)
        groups = {gid}
    home = (account and account.home) or "/"
    shell = (account and account.shell) or ""
    return User(uid, gid, tuple(sorted(groups))[:MAX_GROUPS], login or str(uid), home, shell)


def read(user: str) -> User:
    """Look *user* up in the files of this root; see `lookup`."""
    return lookup(user, read_text("/etc/passwd"), read_text("/etc/group"))


def read_text(path: str) -> str:
    """Return up to `MAX_FILE` bytes of a regular file; anything else reads as empty."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return ""
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            return ""
        return os.read(file, min(found.st_size, MAX_FILE)).decode("utf-8", "surrogateescape")
    except OSError:
        return ""
    finally:
        os.close(file)


def accounts(passwd: str) -> Iterator[Account]:
    """Yield the usable lines of *passwd*."""
    for line in passwd.split("\n"):
        fields = line.split(":")
        if len(fields) >= 7 and _is_id(fields[2]) and _is_id(fields[3]):
            yield Account(fields[0], int(fields[2]), int(fields[3]), fields[5], fields[6])


def _find_account(name: str, passwd: str) -> Account | None:
    by_uid = None
    for account in accounts(passwd):
        if account.name == name:
            return account
        if by_uid is None and _is_id(name) and account.uid == int(name):
            by_uid = account
    return by_uid


def _groups(group: str) -> Iterator[tuple[str, int, list[str]]]:
    for line in group.split("\n"):
        fields = line.split(":")
        if len(fields) >= 4 and _is_id(fields[2]):
            yield fields[0], int(fields[2]), fields[3].split(",")


def _find_group(name: str, group: str) -> int:
    for found, gid, _ in _groups(group):
        if found == name:
            return gid
    if not _is_id(name):
        raise _unknown("group", name)
    return _number(name)


def _memberships(login: str, group: str) -> Iterator[int]:
    for _, gid, members in _groups(group):
        if login and login in members:
            yield gid


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10


def _number(text: str) -> int:
    number = int(text)
    if number > MAX_ID:
        raise errors.ValidationFailedError(
            f"the id {text} is out of range", context={"field": "user", "limit": MAX_ID}
        )
    return number


def _unknown(kind: str, name: str) -> errors.ValidationFailedError:
    return errors.ValidationFailedError(
        f"the sandbox has no {kind} {name!r}",
        context={"field": "user", kind: name},
        suggestion=f"add it to /etc/{'passwd' if kind == 'user' else 'group'}, or give a number",
    )
