"""What messages and documents tell users to run exists."""

import re
from pathlib import Path

import pytest
import typer.main

from atoll.cli import main

ROOT = Path(__file__).resolve().parents[2]
FILES = [*(ROOT / "src").rglob("*.py"), ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
NAMED = re.compile(r"`{1,2}atoll ([a-z]+)(?: ([a-z][a-z-]*))?")


def named() -> set[tuple[str, str]]:
    return {match for file in FILES for match in NAMED.findall(file.read_text("utf-8"))}


def test_verbs_that_are_named_exist() -> None:
    found = {verb for verb, _ in named()}
    assert found
    assert found - set(main.VERBS) == set()


@pytest.mark.parametrize("group", ["containers", "image"])
def test_verbs_of_groups_that_are_named_exist(group: str) -> None:
    click = typer.main.get_command(main.application([group]))
    known = set(click.commands[group].commands)  # type: ignore[attr-defined]
    assert known
    assert {verb for first, verb in named() if first == group and verb} - known == set()


def test_the_page_of_the_command_line_names_every_verb() -> None:
    page = (ROOT / "docs/operating.md").read_text("utf-8")
    assert set(main.VERBS) - {verb for verb, _ in NAMED.findall(page)} == set()


def test_the_start_page_leads_to_every_page() -> None:
    start = (ROOT / "docs/index.md").read_text("utf-8")
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert pages - set(re.findall(r"\(([a-z]+\.md)\)", start)) == set()
