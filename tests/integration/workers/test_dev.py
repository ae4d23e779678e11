import socket
from pathlib import Path
from typing import Any

import pytest

from atoll.errors import InvalidConfigError, PortInUseError
from atoll.wire.objects import Migration, Project, ProjectConfig, RenamedClass
from atoll.workers import dev, wrangler

CONFIG = """{
  "name": "shop", "main": "index.py",
  "containers": [{"class_name": "Box", "image": "IMAGE", "max_instances": 3,
                  "instance_type": {"vcpu": 2, "memory_mib": 512, "disk_mb": 900}}],
  "durable_objects": {"bindings": [
    {"class_name": "Box", "name": "BOX"}, {"class_name": "Cage", "name": "CAGE"}]},
  "migrations": [{"tag": "v1", "renamed_classes": [{"from": "Cell", "to": "Cage"}]}]
}"""


class Engine:
    """Remembers what it is told; what it does with it is tested with the engine."""

    def __init__(self) -> None:
        self.images = self
        self.told: dict[str, Any] = {}
        self.migrations: list[Migration] = []
        self.built: list[dict[str, Any]] = []

    async def configure_project(self, name: str, config: ProjectConfig) -> Project:
        self.migrations = config.migrations
        renamed = {"Cage": "shop-cell"}
        return Project(namespaces=config.classes | renamed, tag="v1")

    async def build_base(self, **_: Any) -> None:
        self.built.append({"tag": "atoll/base"})

    async def build(self, folder: Path, **how: Any) -> None:
        self.built.append({"folder": folder, **how})

    def namespace(self, name: str) -> "Namespace":
        return Namespace(self.told, name)


class Namespace:
    def __init__(self, told: dict[str, Any], name: str) -> None:
        self.told, self.name = told, name

    async def configure(self, config: Any) -> None:
        self.told[self.name] = config


def project(root: Path, image: str) -> wrangler.Project:
    (root / "index.py").touch()
    (root / "wrangler.jsonc").write_text(CONFIG.replace("IMAGE", image))
    return wrangler.load(root)


async def test_each_class_is_a_namespace_with_the_limits_of_its_container(tmp_path: Path) -> None:
    engine = Engine()
    namespaces = await dev.apply(engine, project(tmp_path, "atoll/base"), print)
    assert namespaces == {"Box": "shop-box", "Cage": "shop-cell"}
    box = engine.told["shop-box"]
    assert (box.image, box.max_instances) == ("atoll/base", 3)
    assert (box.instance_type.vcpu, box.instance_type.memory_mib) == (2, 512)
    assert engine.told["shop-cell"].image is None
    assert engine.built == [{"tag": "atoll/base"}]
    assert engine.migrations[0].renamed_classes == [RenamedClass(from_="Cell", to="Cage")]


@pytest.mark.parametrize("image", ["./Dockerfile", "./", "Dockerfile"])
async def test_a_dockerfile_is_built_from_its_folder(tmp_path: Path, image: str) -> None:
    (tmp_path / "Dockerfile").write_text("FROM atoll/base\n")
    engine = Engine()
    await dev.apply(engine, project(tmp_path, image), print)
    built = engine.built[-1]
    assert (built["folder"], built["dockerfile"]) == (tmp_path, "Dockerfile")
    assert engine.told["shop-box"].image == built["tag"] == "localhost/shop-box:dev"


async def test_an_image_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"\./docker/Dockerfile"):
        await dev.apply(Engine(), project(tmp_path, "./docker/Dockerfile"), print)


async def test_a_taken_port_is_a_typed_error(tmp_path: Path) -> None:
    project(tmp_path, "atoll/base")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match=str(port)):
            await dev.serve(Engine(), tmp_path, say=print, ready=print, port=port)
