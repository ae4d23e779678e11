"""Which files of a large tree may hold a text, by the image's own ripgrep.

It only chooses: the files it names are read and searched here, so that lines, columns, order and
the language of expressions are the same in every image. It looks for plain bytes, in every
file that our own walk would read, or it is not asked: below a mount it might block on what we open
without waiting, and what it could not read it does not name.

It is a program of the sandbox and gets what a command of the same user has: the commands' cgroup,
one pipe, no connection. An answer that is not to be trusted, or too long to be worth it, is none.
"""

import os
import select
import signal
import time
from collections.abc import Sequence
from typing import Final, NoReturn

from atoll.agent import kernel
from atoll.agent.descriptors import keep_only
from atoll.agent.files import mounted
from atoll.agent.files.needles import Needles
from atoll.agent.files.streams import Interrupted, Stream

DIRECTORIES: Final = (b"/usr/local/bin", b"/usr/bin", b"/bin")
"""Where it is looked for. The PATH of a session is the user's affair, a file call is ours."""

MAX_FILES: Final = 2_000
"""Named files up to which it pays to have asked. Of a text that is in every second file the
answers are cut long before the end of the tree."""

PATIENCE: Final = 60.0
"""Seconds it may take; it may be any program."""

_LAST_MOMENT: Final = 1.0
_MAX_BYTES: Final = MAX_FILES * 256
_ARGUMENTS: Final = (
    b"--no-config", b"--no-ignore", b"--hidden", b"--no-messages", b"--encoding=none",
    b"--no-mmap", b"--color=never", b"--glob=!.git/", b"--fixed-strings", b"--null",
    b"--files-with-matches",
)  # fmt: skip
_NOTHING_FOUND: Final = 1


def files_with(stream: Stream, top: int, needles: Needles) -> list[list[bytes]] | None:
    """Return the files below the directory *top* that may hold one of *needles*, in walk order.

    Returns:
        Their relative paths as components; None when there is no ripgrep that can tell.

    Raises:
        Interrupted: the caller is gone.
    """
    program = _find()
    if program is None or _has_mounts(top):
        return None
    case = b"--ignore-case" if needles.any_case else b"--case-sensitive"
    texts = [b"--regexp=" + text for text in needles.texts]
    answer = _run(stream, [program, *_ARGUMENTS, case, *texts, b"--", b"."], top)
    return None if answer is None else _parse(answer)


def _find() -> bytes | None:
    paths = (directory + b"/rg" for directory in DIRECTORIES)
    return next((path for path in paths if os.access(path, os.X_OK)), None)


def _has_mounts(top: int) -> bool:
    """Tell whether something is mounted below *top*, or that cannot be known."""
    try:
        place = os.readlink(b"/proc/self/fd/%d" % top)
    except OSError:
        return True
    return place in {b"/", b"/proc", b"/sys"} or mounted.below(top) != set()


def _parse(answer: bytes) -> list[list[bytes]] | None:
    """Return the names in the order of a walk; None when they are none of a walk's."""
    names = [name.removeprefix(b"./").split(b"/") for name in answer.split(b"\0")[:-1]]
    if any(part in {b"", b".", b".."} for name in names for part in name):
        return None
    return sorted(names)


def _run(stream: Stream, argv: list[bytes], top: int) -> bytes | None:
    """Return all it prints; None when it failed or was ended."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        _become(argv, top, writer, stream.procs)
    os.close(writer)
    try:
        answer = _collect(stream, reader)
        if answer is not None:
            _wait(pid)
    finally:
        os.close(reader)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    ended_well = os.waitstatus_to_exitcode(status) in {0, _NOTHING_FOUND}
    return answer if ended_well else None


def _collect(stream: Stream, reader: int) -> bytes | None:
    parts: list[bytes] = []
    size = count = 0
    end = time.monotonic() + PATIENCE
    while (left := end - time.monotonic()) > 0:
        heard = stream.wanted_by(left, reader)
        if heard is False:
            raise Interrupted("the caller is gone or cancelled")
        if heard is None:
            continue
        part = os.read(reader, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
        count += part.count(b"\0")
        if size > _MAX_BYTES or count > MAX_FILES:
            return None
    return None


def _wait(pid: int) -> None:
    """Give it, whose output has ended, a moment to end itself."""
    poll = select.poll()
    process = os.pidfd_open(pid)
    try:
        poll.register(process, select.POLLIN)
        poll.poll(_LAST_MOMENT * 1000)
    finally:
        os.close(process)


def _become(argv: list[bytes], top: int, output: int, procs: Sequence[int]) -> NoReturn:
    """Be the program, as a command of the user would be."""
    try:
        os.setsid()
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for fd in procs:
            os.write(fd, b"0")
        os.fchdir(top)
        null = os.open(os.devnull, os.O_RDWR)
        for target, fd in enumerate((null, output, null)):
            os.dup2(fd, target)
        keep_only({0, 1, 2})
        os.execve(argv[0], argv, {b"PATH": b":".join(DIRECTORIES)})
    finally:
        os._exit(127)
