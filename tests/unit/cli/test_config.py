"""Settings are shown with their origin, keys never."""

import json
from pathlib import Path

import pytest

from atoll.cli import main
from atoll.cli.config import shown


def test_every_setting_is_shown_with_where_it_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "atoll.toml"
    file.write_text('[server]\nport = 9\napi_key = "s3cret"\n')
    monkeypatch.setenv("ATOLL_STATE_DIR", "/srv/x")
    with pytest.raises(SystemExit) as caught:
        main.main(["config", "--config", str(file), "--json"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    told = json.loads(text)
    assert told["server.port"] == {"value": 9, "origin": str(file)}
    assert told["storage.state_dir"] == {"value": "/srv/x", "origin": "ATOLL_STATE_DIR"}
    assert told["server.host"]["origin"] == "default"
    assert "s3cret" not in text


def test_a_key_is_told_to_be_set_not_what_it_is() -> None:
    assert shown("server.api_key", "k") == "(set)"
    assert shown("server.api_key", None) is None
    assert shown("server.port", 1) == 1
