"""Paths and bodies of the agent's file operations, against races and nonsense."""

import os
import random
import signal
import string
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atoll import errors
from atoll.agent.files import dispatch
from atoll.agent.files.spools import is_temporary
from atoll.wire.frames import Kind
from integration.agent.files_calls import NOBODY, Call, call, shared_directory

EXAMPLES = int(os.environ.get("ATOLL_FUZZ_EXAMPLES", "60"))
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

CONTENTS = (b"a" * 70_000, b"b" * 300_000)

EXPECTED = (
    errors.PermissionDeniedError,
    errors.FileNotFoundError,
    errors.NotDirectoryError,
    errors.IsDirectoryError,
    errors.FileExistsError,
    errors.TooManyLinksError,
    errors.SecurityError,
)


def _say(running: Call, *frames: tuple[int, bytes]) -> None:
    """Send frames to an operation that may be over already."""
    with suppress(BrokenPipeError, ConnectionResetError):
        for kind, payload in frames:
            running.send(kind, payload)


@contextmanager
def _swapping(top: Path) -> Iterator[None]:
    """Let two processes of the user turn `top/d` into a directory and links, as fast as they can."""
    pids = [_swapper(top, number) for number in range(2)]
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _swapper(top: Path, number: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        random.seed(number)
        own = f"{top}/own{number}"
        while True:
            with suppress(OSError):
                _swap_once(str(top), own)
    finally:
        os._exit(1)


def _swap_once(top: str, own: str) -> None:
    with suppress(OSError):
        os.rename(f"{top}/d", own)
        if os.path.islink(own):
            os.unlink(own)
    what = random.randrange(4)
    if what == 0:
        os.symlink(f"{top}/secret", f"{top}/d")
    elif what == 1:
        os.symlink(f"{top}/open", f"{top}/d")
    elif what == 2 and os.path.isdir(own):
        os.rename(own, f"{top}/d")
    else:
        os.mkdir(f"{top}/d")


def _contents(top: Path) -> Iterator[tuple[str, bytes]]:
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                yield path, Path(path).read_bytes()


@pytest.mark.skipif(os.getuid() != 0, reason="needs a second user")
def test_no_swap_of_directories_gets_round_the_rights_or_leaves_a_temporary() -> None:
    with shared_directory() as top:
        (top / "secret").mkdir(mode=0o755)
        (top / "secret/f").write_bytes(b"root's")
        (top / "open").mkdir()
        (top / "open").chmod(0o777)
        source = top / "source"
        source.mkdir(mode=0o755)
        (source / "f").write_bytes(CONTENTS[0])
        requests: list[tuple[str, dict[str, Any], list[bytes] | None]] = [
            ("write_file", {"path": f"{top}/d/f"}, [CONTENTS[0]]),
            ("write_file", {"path": f"{top}/d/sub/f"}, [CONTENTS[1]]),
            ("copy_file", {"source": str(source), "target": f"{top}/d/c", "recursive": True}, None),
            ("copy_file", {"source": f"{source}/f", "target": f"{top}/d/f"}, None),
            ("delete_file", {"path": f"{top}/d", "recursive": True}, None),
        ]
        with _swapping(top):
            for turn in range(max(EXAMPLES, 5)):
                op, fields, body = requests[turn % len(requests)]
                with suppress(*EXPECTED):
                    call(op, body=body, uid=NOBODY, **fields)
        assert os.listdir(top / "secret") == ["f"]
        assert (top / "secret/f").read_bytes() == b"root's"
        for path, content in _contents(top):
            assert not is_temporary(os.fsencode(os.path.basename(path)))
            assert content in {*CONTENTS, b"root's"}


_NAMES = st.one_of(
    st.text(max_size=12),
    st.text(alphabet="./\0 \n\uef80\ud800-", max_size=12),
    st.sampled_from(["..", "../..", "x;touch /tmp/p", "$(id)", "-rf", "a" * 300, "a/" * 3000]),
)


@FUZZ
@given(st.sampled_from(sorted(dispatch.OPERATIONS)), _NAMES, _NAMES)
def test_every_path_gets_an_answer_or_a_typed_error(
    tmp_path: Path, op: str, one: str, other: str
) -> None:
    """Below a directory of its own: `..` of these paths goes through links to nowhere."""
    if op in {"delete_file", "rename_file", "move_file", "set_permissions"} and ".." in one:
        return
    fields: dict[str, Any] = {
        "path": f"sandbox/{one}", "source": f"sandbox/{one}", "target": f"sandbox/{other}",
        "paths": [f"sandbox/{one}"], "old": "a", "new": "b", "text": "x", "pattern": other,
        "exclude": [other], "excludes": other, "limit": 20, "cursor": other, "length": 100,
    }  # fmt: skip
    if ".." in other:
        fields["target"] = "sandbox/x"
    (tmp_path / "sandbox").mkdir(exist_ok=True)
    running = Call(op, cwd=str(tmp_path), **fields)
    last = Kind.END if op in {"write_file", "upload"} else Kind.CANCEL
    _say(running, (Kind.DATA, b"hello"), (last, b""))
    try:
        running.answer()
    except errors.InternalError as error:
        raise AssertionError(f"{op} {one!r} {other!r}: {error}") from error
    except errors.SandboxError:
        pass
    assert not any(is_temporary(os.fsencode(name)) for name in os.listdir(tmp_path))


_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
_FIELDS = st.sampled_from(
    ["path", "source", "target", "offset", "length", "mode", "recursive", "limit", "cursor", "text",
     "regex", "glob", "pattern", "paths", "old", "new", "include", "exclude", "since", "owner"]
)  # fmt: skip


@FUZZ
@given(
    st.sampled_from(sorted(set(dispatch.OPERATIONS) - {"delete_file"})),
    st.dictionaries(_FIELDS, _VALUES),
)
def test_every_header_gets_an_answer_or_a_typed_error(op: str, fields: dict[str, Any]) -> None:
    running = Call(op, **{"path": "/nonexistent/x", **fields, "cwd": "/nonexistent"})
    running.socket.shutdown(1)
    try:
        running.answer()
    except errors.InternalError as error:
        raise AssertionError(f"{op} {fields!r}: {error}") from error
    except errors.SandboxError:
        pass


@FUZZ
@given(st.lists(st.binary(max_size=1500), max_size=4), st.sampled_from([Kind.END, Kind.CANCEL]))
def test_every_archive_unpacks_or_leaves_nothing(
    tmp_path: Path, chunks: list[bytes], last: Kind
) -> None:
    running = Call("upload", path=str(tmp_path / "target"))
    _say(running, *((Kind.DATA, chunk) for chunk in chunks), (last, b""))
    try:
        running.answer()
        (tmp_path / "target").rmdir()
    except errors.InternalError as error:
        raise AssertionError(f"{chunks!r}: {error}") from error
    except errors.SandboxError:
        pass
    assert os.listdir(tmp_path) == []


@FUZZ
@given(st.text(alphabet=string.printable + "äöü\uef81", min_size=1, max_size=80))
def test_every_name_the_kernel_takes_comes_back(tmp_path: Path, name: str) -> None:
    if "/" in name or "\0" in name or name in {".", ".."}:
        return
    call("write_file", path=f"{tmp_path}/{name}", body=[b"x"])
    [found] = call("list_files", path=str(tmp_path), include_hidden=True).reply["files"]
    assert found["name"] == name
    call("delete_file", path=found["absolutePath"])
