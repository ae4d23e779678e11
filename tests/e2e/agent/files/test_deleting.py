import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll.agent.files import deleting

pytestmark = pytest.mark.e2e


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    """A tree with something mounted in it."""
    if os.geteuid():
        pytest.skip("needs root")
    (tmp_path / "t/a/mounted").mkdir(parents=True)
    (tmp_path / "t/own").write_text("x")
    subprocess.run(["mount", "-t", "tmpfs", "none", tmp_path / "t/a/mounted"], check=True)
    (tmp_path / "t/a/mounted/precious").write_text("x")
    yield tmp_path
    subprocess.run(["umount", tmp_path / "t/a/mounted"], check=True)


def test_what_is_mounted_in_a_tree_is_not_deleted_with_it(tree: Path) -> None:
    top = os.open(tree, os.O_PATH)
    with pytest.raises(OSError):
        deleting.delete_tree(top, b"t", one_device=True)
    os.close(top)
    assert (tree / "t/a/mounted/precious").read_text() == "x"
    assert not (tree / "t/own").exists()
