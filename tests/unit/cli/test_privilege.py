"""A path that is refused becomes advice; other refusals stay as they are."""

import errno
from pathlib import Path

import pytest

from atoll import errors
from atoll.cli import exit_codes, main, privilege

STATE, CACHE = Path("/var/lib/atoll"), Path("/var/cache/atoll")


def refused(path: str) -> PermissionError:
    return PermissionError(errno.EACCES, "Permission denied", path)


@pytest.mark.parametrize("path", ["/var/lib/atoll", "/var/lib/atoll/engine.log"])
def test_a_refused_state_directory_says_what_to_do(path: str) -> None:
    told = privilege.explained(refused(path), (STATE, CACHE), 1000)
    assert told is not None
    assert path in str(told)
    assert "as root" in str(told)
    assert "ATOLL_STATE_DIR" in str(told)
    assert exit_codes.exit_code(told) == exit_codes.CONFIG


def test_a_typed_refusal_is_explained_too() -> None:
    error = errors.from_os_error(refused(""), "/var/cache/atoll/images/records")
    assert privilege.explained(error, (STATE, CACHE), 1000)


def test_a_refused_file_of_the_caller_or_of_a_sandbox_is_left_alone() -> None:
    assert privilege.explained(refused("/home/me/f"), (STATE, CACHE), 1000) is None
    assert privilege.explained(refused("/var/lib/atoll2/f"), (STATE, CACHE), 1000) is None
    assert privilege.explained(FileNotFoundError(2, "no", str(STATE)), (STATE,), 1000) is None


def test_root_is_not_told_to_be_root() -> None:
    assert privilege.explained(refused(str(STATE)), (STATE, CACHE), 0) is None


def test_a_refusal_inside_a_verb_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fail(*_: object) -> None:
        raise refused(str(tmp_path / "images"))

    monkeypatch.setenv("ATOLL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("atoll.cli.image.ImageStore", fail)
    with pytest.raises(SystemExit) as caught:
        main.main(["image", "list"])
    assert caught.value.code == exit_codes.CONFIG
    assert capsys.readouterr().err.count("\n") == 1
