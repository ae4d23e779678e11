"""Which sandboxes an engine without records has, told by the names of groups."""

from pathlib import Path

from atoll.runtime.oci import abandoned
from atoll.runtime.oci.cgroup import Hierarchies


def _tree(top: Path, *names: str) -> Path:
    for name in names:
        (top / name).mkdir(parents=True)
    return top


async def test_groups_of_one_engine_are_removed_in_all_hierarchies(tmp_path: Path) -> None:
    """A crash leaves some in one hierarchy only."""
    memory = _tree(tmp_path / "memory", "atoll/a/one/agent", "atoll/a/one/user", "atoll/b/one")
    freezer = _tree(tmp_path / "freezer", "atoll/a/two", "other")
    unified = _tree(tmp_path / "unified", "atoll/a/three")
    found = Hierarchies({"memory": memory, "freezer": freezer}, unified)
    await abandoned.remove("a", found)
    assert [str(p.relative_to(tmp_path)) for p in sorted(tmp_path.glob("*/atoll/*"))] == [
        "memory/atoll/b"
    ]


async def test_an_engine_without_groups_has_none(tmp_path: Path) -> None:
    await abandoned.remove("a", Hierarchies({}, tmp_path, frozenset({"memory"})))
