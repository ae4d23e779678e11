"""Paths and bodies of the agent's file operations, against races and nonsense."""

import itertools
import os
import random
import signal
import stat
import string
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atoll import errors
from atoll.agent.files import dispatch, pathnames, writing
from atoll.agent.files.requests import Fields
from atoll.agent.files.spools import is_temporary, temporary_name
from atoll.agent.files.streams import Stream
from atoll.host import trees
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
        away: list[str] = []
        for turn in itertools.count():
            with suppress(OSError):
                _swap_once(str(top), f"{top}/away{number}.{turn}", away)
    finally:
        os._exit(1)


def _swap_once(top: str, free: str, away: list[str]) -> None:
    """Move `d` away to *free*, and put something else in its place; directories come back."""
    with suppress(OSError):
        os.rename(f"{top}/d", free)
        if os.path.islink(free):
            os.unlink(free)
        else:
            away.append(free)
    what = random.randrange(4)
    if what == 0:
        os.symlink(f"{top}/secret", f"{top}/d")
    elif what == 1:
        os.symlink(f"{top}/open", f"{top}/d")
    elif len(away) < 4:
        os.mkdir(f"{top}/d")
    else:
        back = away.pop(random.randrange(len(away)))
        try:
            os.rename(back, f"{top}/d")  # over an empty one of the other process, or not at all
        except OSError:
            away.append(back)


def _contents(top: Path) -> Iterator[tuple[str, bytes]]:
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                yield path, Path(path).read_bytes()


def _problems(top: Path) -> list[str]:
    """What a race must never leave: a temporary, a mixed file, a change where the user may not."""
    found = []
    if os.listdir(top / "secret") != ["f"] or (top / "secret/f").read_bytes() != b"root's":
        found.append("the closed directory has changed")
    for path, content in _contents(top):
        if is_temporary(os.fsencode(os.path.basename(path))):
            found.append(f"{path} is left")
        elif content not in {*CONTENTS, b"root's"}:
            found.append(f"{path} is mixed")
    return found


@contextmanager
def _raced() -> Iterator[Path]:
    with shared_directory() as top:
        (top / "secret").mkdir(mode=0o755)
        (top / "secret/f").write_bytes(b"root's")
        (top / "open").mkdir()
        (top / "open").chmod(0o777)
        (top / "source").mkdir(mode=0o755)
        (top / "source/f").write_bytes(CONTENTS[0])
        yield top


@pytest.mark.skipif(os.getuid() != 0, reason="needs a second user")
def test_no_swap_of_directories_gets_round_the_rights_or_leaves_a_temporary() -> None:
    with _raced() as top:
        source = f"{top}/source"
        requests: list[tuple[str, dict[str, Any], list[bytes] | None]] = [
            ("write_file", {"path": f"{top}/d/f"}, [CONTENTS[0]]),
            ("write_file", {"path": f"{top}/d/sub/f"}, [CONTENTS[1]]),
            ("copy_file", {"source": source, "target": f"{top}/d/c", "recursive": True}, None),
            ("copy_file", {"source": f"{source}/f", "target": f"{top}/d/f"}, None),
            ("delete_file", {"path": f"{top}/d", "recursive": True}, None),
        ]
        with _swapping(top):
            for turn in range(max(EXAMPLES, 5)):
                op, fields, body = requests[turn % len(requests)]
                with suppress(*EXPECTED):
                    call(op, body=body, uid=NOBODY, **fields)
        assert _problems(top) == []


def _write_by_names(stream: Stream, fields: Fields) -> dict[str, Any]:
    """Write as one would who trusts that a path means the same twice."""
    path = fields.path()
    draft = os.path.join(os.path.dirname(path), temporary_name())
    with pathnames.blame(path):
        try:
            with open(draft, "wb") as file:
                file.writelines(stream.body())
            os.rename(draft, path)
        except OSError:
            with suppress(OSError):
                os.unlink(draft)
            raise
    return {}


@pytest.mark.skipif(os.getuid() != 0, reason="needs a second user")
def test_the_race_catches_a_writer_that_goes_by_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weakened run: without held directories the same swaps leave temporaries."""
    monkeypatch.setattr(writing, "write_file", _write_by_names)
    deadline = time.monotonic() + 40
    with _raced() as top, _swapping(top):
        while not [problem for problem in _problems_so_far(top) if problem.endswith("is left")]:
            assert time.monotonic() < deadline
            for _ in range(10):
                with suppress(*EXPECTED):
                    call("write_file", body=[CONTENTS[1]], uid=NOBODY, path=f"{top}/d/f")


def _problems_so_far(top: Path) -> list[str]:
    with suppress(OSError):  # the swaps go on
        return _problems(top)
    return []


_FOLDERS = ("", "d", "d/e", "h")
_PARENTS = st.sampled_from(["", "d", "e", "h", "d/e", "..", "../..", "../h", ".", "l1", "../l2"])
_PATH = st.builds(
    os.path.join, _PARENTS, st.sampled_from(["f", "l1", "l2", "new", "f/", "d", ".."])
)
_LINK = st.builds(os.path.join, st.sampled_from(_FOLDERS), st.sampled_from(["l1", "l2"]))


@FUZZ
@given(st.dictionaries(_LINK, _PATH, min_size=2, max_size=6), st.booleans(), _PATH)
def test_a_target_is_what_the_kernel_says_it_is(
    tmp_path_factory: pytest.TempPathFactory, links: dict[str, str], absolute: bool, path: str
) -> None:
    """Links at the end are followed by us, step by step: the same file must come out."""
    top = tmp_path_factory.mktemp("links")
    for folder in _FOLDERS:
        (top / folder).mkdir(exist_ok=True)
        (top / folder / "f").touch()
    for name, target in links.items():
        (top / name).symlink_to(f"{top}/{target}" if absolute else target)
    for asked in (*links, path):
        _compare(pathnames.join(os.fsencode(top), os.fsencode(asked)))


def _compare(path: bytes) -> None:
    try:
        expected: os.stat_result | None = os.stat(path)
    except OSError:
        expected = None
    try:
        with pathnames.target(path) as place:
            found = place.stat()
    except errors.SandboxError:
        assert expected is None or stat.S_ISDIR(expected.st_mode)
        return
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert os.path.samestat(found, expected)


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
    try:
        _ask(tmp_path, op, one, other, fields)
    finally:  # three thousand folders in each other are too deep for pytest
        trees.remove(tmp_path / "sandbox")


def _ask(tmp_path: Path, op: str, one: str, other: str, fields: dict[str, Any]) -> None:
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
