import builtins
import errno
import pickle

import pytest

from atoll import errors

ALL = list(errors.registry().items())


@pytest.mark.parametrize(("code", "cls"), ALL, ids=[code for code, _ in ALL])
def test_every_error_survives_the_wire_and_pickle(
    code: str, cls: type[errors.SandboxError]
) -> None:
    error = cls("it failed", context={"path": "/x"}, suggestion="try y", retry_after=2.5)
    for copy in (errors.from_wire(error.to_wire()), pickle.loads(pickle.dumps(error))):
        assert type(copy) is cls
        assert copy.to_wire() == error.to_wire()
        assert str(copy) == "it failed (try y)"
    assert error.to_wire()["code"] == code


def test_codes_are_the_specified_ones_and_append_only() -> None:
    """A code that goes away or changes its status breaks clients that compare it."""
    statuses = {code: cls.http_status for code, cls in ALL}
    assert statuses["TIMEOUT"] == 408
    assert statuses["SESSION_TERMINATED"] == 410
    assert statuses["DISK_QUOTA_EXCEEDED"] == 507
    assert len(statuses) >= 105


def test_a_code_is_registered_once() -> None:
    with pytest.raises(TypeError, match="TIMEOUT"):
        type("Again", (errors.SandboxError,), {}, code="TIMEOUT", status=408)


def test_where_a_builtin_means_the_same_it_catches_the_error_too() -> None:
    with pytest.raises(builtins.FileNotFoundError):
        raise errors.FileNotFoundError("gone")
    with pytest.raises(builtins.TimeoutError):
        raise errors.TimeoutError
    with pytest.raises(builtins.FileExistsError):
        raise errors.FileExistsError


def test_an_unknown_code_keeps_its_code_and_status() -> None:
    error = errors.from_wire({"code": "FROM_THE_FUTURE", "message": "new", "httpStatus": 418})
    assert type(error) is errors.SandboxError
    assert error.to_wire()["code"] == "FROM_THE_FUTURE"
    assert error.to_wire()["httpStatus"] == 418


@pytest.mark.parametrize(
    "body", [None, [], "text", {"code": 7, "context": "no", "retryAfter": "x"}]
)
def test_a_malformed_envelope_is_still_an_error(body: object) -> None:
    assert isinstance(errors.from_wire(body, 502), errors.SandboxError)


def test_texts_that_callers_chose_never_make_an_answer_too_long() -> None:
    wire = errors.SandboxError("m" * 10**6, context={"path": "p" * 10**6, "port": 1}).to_wire()
    assert (len(wire["message"]), len(wire["context"]["path"])) == (2_048, 4_096)
    assert wire["context"]["port"] == 1
    assert wire["message"].endswith("m…")


def test_a_message_is_there_even_when_none_is_given() -> None:
    assert str(errors.NoSpaceError()) == "The file system is full."


@pytest.mark.parametrize(
    ("number", "cls"),
    [
        (errno.ENOENT, errors.FileNotFoundError),
        (errno.EACCES, errors.PermissionDeniedError),
        (errno.EDQUOT, errors.DiskQuotaExceededError),
        (errno.ENOSPC, errors.NoSpaceError),
        (errno.EROFS, errors.ReadOnlyError),
        (errno.EIO, errors.FilesystemError),
    ],
)
def test_a_failed_call_becomes_its_typed_error_with_the_path(
    number: int, cls: type[errors.SandboxError]
) -> None:
    error = errors.from_os_error(OSError(number, "reason"), "/data/x")
    assert type(error) is cls
    assert error.context == {"path": "/data/x", "errno": errno.errorcode[number]}


def test_check_failures_never_cross_the_wire_under_a_code_of_their_own() -> None:
    assert "COMMAND_FAILED" not in errors.registry()
