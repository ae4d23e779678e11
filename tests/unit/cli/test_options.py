"""How verbs print."""

import json

import pytest

from atoll.cli import options
from atoll.wire.files import Changes


def test_json_is_one_line_in_the_names_of_the_wire(capsys: pytest.CaptureFixture[str]) -> None:
    options.print_json(Changes(status="unchanged", version="v\n1"))
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert json.loads(line)["version"] == "v\n1"


def test_nothing_in_a_table_is_markup(capsys: pytest.CaptureFixture[str]) -> None:
    options.print_table(("A", "B"), [("[red]x[/red]", "[link=y]")])
    shown = capsys.readouterr().out
    assert "[red]x[/red]" in shown
    assert "[link=y]" in shown


def test_what_is_piped_is_not_cut_to_a_screen(capsys: pytest.CaptureFixture[str]) -> None:
    options.print_table(("Id", "Code"), [("i" * 63, "MAX_INSTANCES_EXCEEDED")])
    shown = capsys.readouterr().out
    assert "i" * 63 in shown
    assert "MAX_INSTANCES_EXCEEDED" in shown
