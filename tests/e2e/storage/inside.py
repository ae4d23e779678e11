"""Run a function as an id of a sandbox, without the capabilities of the test."""

import os
import pickle
from collections.abc import Callable
from typing import TypeVar

from atoll.host import linux

T = TypeVar("T")


def as_id(uid: int, call: Callable[[], T]) -> T:
    """Return *call*'s result (or raise its error) from a child with uid and gid *uid*."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(uid, call, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        result = pickle.loads(pipe.read())
    os.waitpid(pid, 0)
    if isinstance(result, OSError):
        raise result
    answer: T = result
    return answer


def _child(uid: int, call: Callable[[], object], writing: int) -> None:
    try:
        linux.drop_sys_resource()
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        try:
            result: object = call()
        except OSError as error:
            result = OSError(error.errno, error.strerror)
        os.write(writing, pickle.dumps(result))
    finally:
        os._exit(0)
