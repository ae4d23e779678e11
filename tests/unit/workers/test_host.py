import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import atoll
from atoll.workers import entry, host, wrangler
from atoll.workers.host import find_classes, make_env, served

CONFIG = """{
  "name": "shop", "main": "index.py", "vars": {"MODE": "x"},
  "containers": [{"class_name": "Box", "image": "a", "name": "boxes"}],
  "durable_objects": {"bindings": [
    {"class_name": "Box", "name": "BOX"}, {"class_name": "Cage", "name": "CAGE"}]}
}"""


ENTRY = """
import atoll
class Box(atoll.Sandbox): ...
class Cage(atoll.Sandbox): ...
"""


@pytest.fixture
def project(tmp_path: Path) -> wrangler.Project:
    (tmp_path / "index.py").write_text(ENTRY)
    (tmp_path / "wrangler.jsonc").write_text(CONFIG)
    (tmp_path / ".dev.vars").write_text("KEY=s3cret")
    return wrangler.load(tmp_path)


def test_each_binding_is_the_namespace_of_its_class(project: wrangler.Project) -> None:
    module = entry.import_entry(project.entry)
    classes = find_classes(project, module, {"Cage": "shop-cell"})
    env: Any = make_env(project, atoll.connect("unix:///no.sock"), classes)
    assert (env.BOX.name, env.CAGE.name) == ("boxes", "shop-cell")
    assert env.BOX.sandbox_type.__name__ == "Box"
    assert (env.MODE, env.KEY) == ("x", "s3cret")


def test_buckets_are_folders_of_the_project_in_development(project: wrangler.Project) -> None:
    bound = msgspec.structs.replace(
        project.config, r2_buckets=[wrangler.Bucket("DATA", "data-of-shop")]
    )
    project = msgspec.structs.replace(project, config=bound)
    classes = find_classes(project, entry.import_entry(project.entry), {})
    env: Any = make_env(project, atoll.connect("unix:///no.sock"), classes)
    assert repr(env.DATA) == "<Bucket data-of-shop>"
    assert (project.root / ".atoll/buckets/data-of-shop/objects").is_dir()


class Channel:
    """Attaches at once, later, or never."""

    def __init__(self, log: list[str], *, attaches: bool) -> None:
        self.attached = asyncio.Event()
        self.log = log
        self.attaches = attaches

    async def serve(self) -> None:
        if self.attaches:
            self.attached.set()
        await asyncio.sleep(60)

    async def close(self) -> None:
        self.log.append("closed")


async def test_requests_are_served_once_the_engine_knows_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "ATTACH_SECONDS", 0.01)
    log: list[str] = []
    for attaches in (True, False):
        channel: Any = Channel(log, attaches=attaches)
        async with served(channel):
            assert channel.attached.is_set() == attaches
    async with served(None):
        assert log == ["closed", "closed"]


def test_crons_without_a_handler_are_an_error_of_the_worker(
    project: wrangler.Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    args: Any = SimpleNamespace(
        project=project.root, environment=None, namespaces={}, production=True
    )
    engine: Any = atoll.connect("unix:///no.sock")
    fetch = "\nasync def on_fetch(request, env, ctx): ...\n"
    project.entry.write_text(ENTRY + fetch)
    assert host._load(args, engine).channel
    text = project.file.read_text()
    project.file.write_text(text.rstrip()[:-1] + ', "triggers": {"crons": ["* * * * *"]}}')
    assert host._load(args, engine).channel is None
    assert "scheduled" in caplog.text
    project.entry.write_text(ENTRY + fetch + "async def scheduled(event): ...\n")
    assert host._load(args, engine).channel
