"""The pre-warmed process: imports what takes long once, then forks a kernel for each context.

A kernel has a keeper, a process between it and us: a subreaper, so that whatever the code leaves
stays below it, and the one who knows the kernel's wait status. Kernels outlive this process.
"""

from __future__ import annotations

import array
import errno
import fcntl
import gc
import importlib
import json
import os
import random
import signal
import socket
import sys
from typing import Any, NoReturn

from . import channel, figures, hooks, rich, streams
from .channel import Channel
from .kernel import Kernel

PRELOADED = ("numpy", "pandas", "matplotlib.pyplot")
_HIGH = 700

_kernels: list[Kernel] = []


def main(fd: int) -> NoReturn:
    """Serve until the agent hangs up.

    Args:
        fd: socket to the agent.
    """
    control = socket.socket(fileno=_high(fd))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, _reap)
    executor = _executor()
    for name in PRELOADED:
        _preload(name)
    figures.prepare()
    gc.collect()
    gc.freeze()
    control.send(b'{"ready":true}')
    while True:
        data, fds = _request(control)
        if not data:
            os._exit(0)
        if os.fork() == 0:
            control.close()
            _keep(socket.socket(fileno=fds[0]), executor)
        for received in fds:
            os.close(received)


def _executor() -> Any:
    def emit(kind: str, forms: dict[str, Any], display_id: Any) -> None:
        for kernel in _kernels:
            kernel.emit(kind, forms, display_id)

    hooks.install(lambda figure: emit("display", rich.forms(figure), None))
    figures.connect(lambda figure: emit("display", figures.forms(figure) or {}, None))
    os.environ.setdefault("PLOTLY_RENDERER", "plotly_mimetype")
    try:
        from .ipython import OnIPython

        return OnIPython(emit)
    except ImportError:
        from .executor import Plain

        return Plain(emit)


def _preload(name: str) -> None:
    try:
        importlib.import_module(name)
    except Exception:  # not there, or broken: the code that needs it will be told
        return


def _request(control: socket.socket) -> tuple[bytes, list[int]]:
    fds = array.array("i")
    data, ancillary, _, _ = control.recvmsg(16, socket.CMSG_SPACE(4 * fds.itemsize))
    for _, _, payload in ancillary:
        fds.frombytes(payload)
    return data, fds.tolist()


def _reap(*_: object) -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _keep(sock: socket.socket, executor: Any) -> NoReturn:
    """Be the keeper: start the kernel, wait for it and for all that it leaves."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        sock = socket.socket(fileno=_high(sock.detach()))
        link = Channel(sock)
        _prctl(_SET_CHILD_SUBREAPER, 1)
        link.send(channel.KEEPER, 0, b"{}")
        pid = os.fork()
        if pid == 0:
            _become_kernel(link, executor)
        _wait(link, pid)
        code = 0
    finally:
        os._exit(code)


def _wait(link: Channel, kernel: int) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return
        if pid == kernel:
            try:
                link.send_json(channel.EXIT, 0, {"status": status})
                link.sock.close()
            except OSError:
                continue


def _become_kernel(link: Channel, executor: Any) -> NoReturn:
    code = 1
    try:
        _prctl(_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        _reseed()
        _surround(_plan(link))
        streams.install()
        kernel = Kernel(link, executor)
        _kernels.append(kernel)
        link.send_json(channel.READY, 0, {})
        kernel.serve()
        code = 0
    except OSError as error:
        link.send_json(channel.READY, 0, {"errno": error.errno, "path": str(error.filename or "")})
    finally:
        os._exit(code)


def _plan(link: Channel) -> dict[str, Any]:
    message = link.receive()
    if message is None or message.kind != channel.PLAN:
        raise OSError(errno.EPROTO, os.strerror(errno.EPROTO))
    plan: dict[str, Any] = json.loads(message.body)
    return plan


def _surround(plan: dict[str, Any]) -> None:
    """Take the context's directory and environment."""
    os.chdir(plan["cwd"])
    wanted: dict[str, str] = plan["env"]
    wanted.setdefault("PLOTLY_RENDERER", "plotly_mimetype")
    for name in set(os.environ) - set(wanted):
        del os.environ[name]
    os.environ.update(wanted)
    sys.argv = [""]
    if "" not in sys.path:
        sys.path.insert(0, "")
    for part in reversed(wanted.get("PYTHONPATH", "").split(":")):
        if part and part not in sys.path:
            sys.path.insert(1, part)


def _reseed() -> None:
    """Contexts are copies of one process; their random numbers must not be."""
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


_SET_PDEATHSIG = 1
_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    try:
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except Exception:  # an image without ctypes: orphans of the code then go to the agent
        return


def _high(fd: int) -> int:
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    os.close(fd)
    return moved
