"""The image verbs: what they print, and how they fail."""

import json
from pathlib import Path

import pytest

from atoll.cli.image import _visible
from atoll.cli.main import main
from atoll.images.catalog import Catalog
from atoll.images.layout import Places, Record


@pytest.fixture(autouse=True)
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A private store with one image."""
    monkeypatch.setenv("ATOLL_CACHE_DIR", str(tmp_path))
    places = Places(tmp_path / "images")
    places.make()
    catalog = Catalog(places)
    record = Record(digest="a" * 64, layers=(), document={}, created_at=0.0, sizes=())
    catalog.add(record, "docker.io/library/x:latest")
    return catalog


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exited:
        main(["image", *arguments])
    return int(str(exited.value.code))


def test_list_prints_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", "--json") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["reference"] == "docker.io/library/x:latest"


def test_list_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list") == 0
    assert "docker.io/library/x" in capsys.readouterr().out


def test_remove_takes_a_short_name(catalog: Catalog) -> None:
    assert run("remove", "x") == 0
    assert catalog.infos() == []


def test_a_missing_image_is_an_error_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("remove", "y") != 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1


def test_prune_says_how_many(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("prune", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"removed": 0}


@pytest.mark.parametrize("text", ["NAME", "=x", "a b=c"])
def test_a_build_argument_is_name_and_value(text: str, tmp_path: Path) -> None:
    assert run("build", str(tmp_path), "--tag", "t", "--build-arg", text) == 2


def test_a_folder_without_a_dockerfile_is_a_typed_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert run("build", str(tmp_path), "--tag", "t", "--json") != 0
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "INVALID_IMAGE"


def test_control_characters_of_a_build_are_shown_not_obeyed() -> None:
    """A step could else retitle the terminal or hide what it did."""
    assert _visible("a\x1b[2Jb\x07\tü") == "a\\x1b[2Jb\\x07\tü"
