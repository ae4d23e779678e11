import errno
import os
from types import SimpleNamespace

import pytest

from atoll import errors
from atoll.agent import isolation, kernel

MOUNTINFO = """\
29 1 0:26 / / rw shared:1 - overlay overlay rw
30 29 0:27 / /proc rw,nosuid - proc proc rw
31 30 0:27 /bus /proc/bus ro - proc proc rw
32 31 0:28 / /proc/bus/pci ro - tmpfs tmpfs ro
33 30 0:29 /null /proc/kcore rw - tmpfs tmpfs rw
34 30 0:29 /null /proc/kcore rw - tmpfs tmpfs rw
35 29 0:30 / /process rw - tmpfs tmpfs rw
"""


def session(**fields: object) -> SimpleNamespace:
    return SimpleNamespace(**{"isolation": True, "namespace": None, **fields})


def test_what_covers_proc_is_found_outer_before_inner_and_once() -> None:
    assert isolation.covers(MOUNTINFO.splitlines()) == ["bus", "bus/pci", "kcore"]


def test_only_isolated_sessions_have_a_namespace() -> None:
    made = isolation.Isolation()
    assert made.of(None) is None
    assert made.of(session(isolation=False)) is None


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS, errno.EINVAL])
def test_where_the_kernel_makes_no_namespace_the_error_is_typed_and_nothing_stays(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(kernel, "unshare", refuse)
    wanted, made = session(), isolation.Isolation()
    with pytest.raises(errors.NotSupportedByRuntimeError):
        made.of(wanted)
    assert wanted.namespace is None
    assert made.pids() == set()


def test_namespaces_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "MAX_NAMESPACES", 0)
    with pytest.raises(errors.ResourceBusyError):
        isolation.Isolation().of(session())
