"""The entry: only the verb that is asked for is loaded, and errors are one line."""

import json
import subprocess
import sys

import pytest

from atoll import errors
from atoll.cli import main


def test_every_verb_can_be_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main.main(["--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert [verb for verb in main.VERBS if verb not in shown] == []


def test_a_verb_does_not_load_the_others() -> None:
    code = (
        "import sys; from atoll.cli import main; main.application(['config'])\n"
        "print([m for m in ('atoll.cli.serve', 'atoll.images.store', 'uvicorn', 'starlette',"
        " 'httpx2', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main.main(["--version"])
    assert (caught.value.code, capsys.readouterr().out) == (0, "atoll 0.1.0\n")


def test_an_error_is_one_line_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    main.report(errors.NoSpaceError("the disk\nis full", suggestion="free some"), as_json=False)
    assert capsys.readouterr().err == "atoll: the disk is full (free some)\n"
    main.report(errors.NoSpaceError("full"), as_json=True)
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "NO_SPACE"


def test_an_error_of_a_verb_becomes_its_exit_code(
    capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    socket = tmp_path_factory.mktemp("none") / "no.sock"
    for arguments, begin in ((["--json"], '{"error"'), ([], "atoll: no engine answers")):
        with pytest.raises(SystemExit) as caught:
            main.main(["containers", "list", "--url", f"unix://{socket}", *arguments])
        assert caught.value.code == 69
        assert capsys.readouterr().err.startswith(begin)


def test_json_after_the_dashes_belongs_to_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.main(["run", "--url", "unix:///no/sock", "--", "echo", "--json"])
    assert capsys.readouterr().err.startswith("atoll: ")
