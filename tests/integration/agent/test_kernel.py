import ctypes
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from atoll.agent import confine, kernel


def in_child(action: Callable[[], object]) -> str:
    """Return the repr of what *action* gives in a child process."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            answer = repr(action())
        except BaseException as error:
            answer = repr(error)
        os.write(writer, answer.encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        answer = file.read().decode()
    os.waitpid(pid, 0)
    return answer


def test_a_refused_call_is_an_os_error() -> None:
    with pytest.raises(OSError):
        kernel.prctl(kernel.PR_CAPBSET_READ, 1_000)


def test_a_signal_that_libc_hides_gets_its_default_too() -> None:
    """GNU make starts its programs with signals 32 and 33 ignored."""

    def ignored() -> int:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("SigIgn:")[2].split()[0], 16) >> 31 & 1

    def undo() -> tuple[int, int]:
        libc, number = ctypes.CDLL(None), {"x86_64": 13, "aarch64": 134}[platform.machine()]
        ignore = (1).to_bytes(8, sys.byteorder) + bytes(24)
        libc.syscall(ctypes.c_long(number), 32, ignore, None, ctypes.c_size_t(8))
        before = ignored()
        kernel.default_signal(32)
        return before, ignored()

    assert in_child(undo) == "(1, 0)"


def test_capabilities_can_be_given_up_and_not_taken_back() -> None:
    def give_up() -> list[bool]:
        kept = kernel.get_permitted() & 1 << confine.CAPABILITIES["CHOWN"]
        kernel.set_capabilities(kept)
        found = [kernel.get_permitted() == kept]
        try:
            kernel.set_capabilities(1 << confine.CAPABILITIES["KILL"])
        except PermissionError:
            found.append(True)
        return found

    assert in_child(give_up) == "[True, True]"


def test_the_filter_holds_in_the_kernel_too() -> None:
    def filtered() -> list[str]:
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        kernel.install_filter(confine.seccomp_program(confine.ARCHITECTURES[platform.machine()]))
        found = []
        actions: list[Callable[[], object]] = [
            lambda: os.execve("/bin/true/x", ["x"], {}),
            lambda: kernel._checked(kernel._libc.unshare(0x10000000)),
            lambda: kernel._checked(kernel._libc.mount(b"a", b"/", b"tmpfs", 0, None)),
        ]
        for action in actions:
            try:
                action()
            except OSError as error:
                found.append(type(error).__name__)
        pid = os.fork()  # libc may use clone3 for it
        if not pid:
            os._exit(0)
        return [*found, str(os.waitpid(pid, 0)[1])]

    assert in_child(filtered) == "['NotADirectoryError', 'PermissionError', 'PermissionError', '0']"


def test_the_type_of_a_file_system_is_known() -> None:
    with open("/proc/self/stat", "rb") as file:
        assert kernel.file_system_type(file.fileno()) == 0x9FA0
    with pytest.raises(OSError, match="descriptor"):
        kernel.file_system_type(-1)
