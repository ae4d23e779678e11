from pathlib import Path

from atoll.engine.objects.registry import Registry
from atoll.engine.store.store import Store
from atoll.wire.objects import ClassOptions, ProjectConfig, WorkerClass
from atoll.wire.sandbox import NamespaceConfig


async def test_projects_and_classes_are_known_to_the_next_engine(tmp_path: Path) -> None:
    store = await Store(tmp_path / "atoll.db").open()
    first = Registry(store)
    await first.configure("p", ProjectConfig(classes={"Box": "N"}))
    cls = WorkerClass(namespace="N", name="Box", options=ClassOptions(env={"A": "1"}))
    assert await first.attach("p", [cls]) == ["N"]
    assert await first.attach("p", [cls]) == []

    second = Registry(store)
    await second.load()
    known = second.known("N")
    assert known
    assert (known.project, known.cls) == ("p", cls)
    assert (second.namespaces("p"), second.all()) == (["N"], ["N"])
    assert second.effective("N", NamespaceConfig()).env == {"A": "1"}
    assert second.effective("M", NamespaceConfig()) == NamespaceConfig()
    assert (await second.configure("p", ProjectConfig(classes={"Box": "x"}))).namespaces == {
        "Box": "N"
    }
    await store.close()
