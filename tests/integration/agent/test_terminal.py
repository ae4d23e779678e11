"""Commands on a pseudo terminal."""

import errno
import fcntl
import os
from typing import Any

import pytest

from atoll.agent import terminal
from atoll.agent.devices import open_devices
from atoll.wire.frames import Kind
from integration.agent.client import Client, alive


def test_a_terminal_is_one(agent: Client) -> None:
    """T05: size, resize, control characters, end of input."""
    with agent.start("tty; stty size; cat; stty size; exit 3", pty=True, cols=91, rows=17) as c:
        got = b""
        while b"17 91" not in got:
            got += c.until(Kind.STDOUT).payload[16:]
        c.send(Kind.RESIZE, b'{"cols":50,"rows":20}')
        c.send(Kind.STDIN, b"typed\n")
        c.send(Kind.STDIN_CLOSE)
        result = c.result()
    assert got.startswith(b"/dev/pts/")
    assert result.stdout.endswith(b"typed\r\n20 50\r\n")
    assert (result.code, result.stderr) == (3, b"")


def test_a_kernel_that_opens_no_slave_by_its_master_has_terminals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As gVisor."""
    asked = fcntl.ioctl

    def refuses(fd: int, request: int, *rest: Any) -> Any:
        if request == terminal._TIOCGPTPEER:
            raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))
        return asked(fd, request, *rest)

    monkeypatch.setattr(fcntl, "ioctl", refuses)
    opened = open_devices()
    master, slave = terminal.open_pair(opened, 91, 17)
    try:
        assert os.isatty(slave)
        assert os.get_terminal_size(slave) == (91, 17)
        os.write(slave, b"said")
        assert os.read(master, 9) == b"said"
    finally:
        for fd in (master, slave, *opened):
            os.close(fd)


def test_control_c_interrupts_on_a_terminal(agent: Client) -> None:
    with agent.start("echo go; sleep 99", pty=True) as connection:
        connection.until(Kind.STDOUT)
        connection.send(Kind.STDIN, b"\x03")
        assert connection.result().record["signal"] == "SIGINT"


def test_ten_megabytes_on_a_terminal_come_through(agent: Client) -> None:
    result = agent.exec("head -c 10000000 /dev/zero | tr '\\0' x", pty=True)
    assert len(result.stdout) == 10_000_000


def test_a_paste_of_64_kilobytes_reaches_a_raw_terminal(agent: Client) -> None:
    text = "stty raw -echo; echo go; head -c 65536 | cksum"
    with agent.start(text, pty=True) as connection:
        connection.until(Kind.STDOUT)
        connection.send(Kind.STDIN, b"p" * 65536)
        assert b" 65536" in connection.result().stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_the_terminal_belongs_to_the_commands_user(agent: Client) -> None:
    """Programs open it again by its name."""
    result = agent.exec(["sh", "-c", "echo again > $(tty)"], user="4242", cwd="/", pty=True)
    assert (result.stdout, result.code) == (b"again\r\n", 0)


def test_a_background_child_on_a_terminal_does_not_hold_the_result(agent: Client) -> None:
    result = agent.exec("trap '' HUP; (sleep 30) & echo $!", pty=True)
    pid = int(result.stdout)
    assert alive(pid)
    os.kill(pid, 9)
