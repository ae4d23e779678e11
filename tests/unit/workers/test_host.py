from pathlib import Path
from typing import Any

import pytest

from atoll.workers import wrangler
from atoll.workers.host import make_env

CONFIG = """{
  "name": "shop", "main": "index.py", "vars": {"MODE": "x"},
  "containers": [{"class_name": "Box", "image": "a", "name": "boxes"}],
  "durable_objects": {"bindings": [
    {"class_name": "Box", "name": "BOX"}, {"class_name": "Cage", "name": "CAGE"}]}
}"""


class Engine:
    """Stands for an environment of the SDK: names are all that is asked of it."""

    def namespace(self, name: str) -> str:
        return f"<{name}>"


@pytest.fixture
def project(tmp_path: Path) -> wrangler.Project:
    (tmp_path / "index.py").touch()
    (tmp_path / "wrangler.jsonc").write_text(CONFIG)
    (tmp_path / ".dev.vars").write_text("KEY=s3cret")
    return wrangler.load(tmp_path)


def test_each_binding_is_the_namespace_of_its_class(project: wrangler.Project) -> None:
    env: Any = make_env(project, Engine())
    assert (env.BOX, env.CAGE) == ("<boxes>", "<shop-cage>")
    assert (env.MODE, env.KEY) == ("x", "s3cret")
