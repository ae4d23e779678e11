import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_place_the_table_names_exists() -> None:
    """A map with streets that are gone is worse than none."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text[text.index("| to change | open |") :]
    places = re.findall(r"`(src/[^`]+)`", table)
    assert len(places) > 10
    missing = [place for place in places if not (ROOT / place).exists()]
    assert missing == []


def test_every_package_has_a_charter() -> None:
    """The first lines of a package say what may live there."""
    packages = [p for p in (ROOT / "src/atoll").rglob("__init__.py") if "_sync" not in p.parts]
    assert [p for p in packages if not p.read_text().startswith('"""')] == []
