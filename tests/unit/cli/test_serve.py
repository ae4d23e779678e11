from pathlib import Path
from typing import Any

import pytest
import structlog
import typer
from typer.testing import CliRunner

from atoll.cli.serve import serve
from atoll.errors import InvalidConfigError
from atoll.server import main
from atoll.settings import Settings


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the verb would have served."""
    found: dict[str, Any] = {}

    async def fake(settings: Settings, **options: Any) -> None:
        found.update(options, settings=settings)

    monkeypatch.setattr(main, "serve", fake)
    monkeypatch.setattr("atoll.server.logs.configure", lambda *_: None)
    monkeypatch.setattr("atoll.host.privacy.keep", lambda: None)
    yield found
    structlog.reset_defaults()


def run(*flags: str) -> Any:
    app = typer.Typer()
    app.command()(serve)
    return CliRunner().invoke(app, flags)


def test_flags_become_settings(served: dict[str, Any], tmp_path: Path) -> None:
    assert run("--state-dir", str(tmp_path), "--port", "0", "--host", "::1").exit_code == 0
    settings = served["settings"]
    assert settings.storage.state_dir == tmp_path
    assert (settings.server.port, settings.server.host) == (0, "::1")
    assert (served["local"], served["ready_fd"]) == (False, None)


@pytest.mark.parametrize(
    ("flags", "port"),
    [(["--no-tcp"], None), (["--local"], None), (["--local", "--port", "1"], 1), ([], 8787)],
)
def test_private_engines_have_no_port_unless_asked(
    served: dict[str, Any], flags: list[str], port: int | None
) -> None:
    assert run(*flags).exit_code == 0
    assert served["settings"].server.port == port


def test_a_wrong_configuration_is_a_typed_error(served: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "atoll.toml"
    file.write_text("[server]\nprot = 1\n")
    assert isinstance(run("--config", str(file)).exception, InvalidConfigError)
    assert served == {}
