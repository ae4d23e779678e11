"""What the engine knows of projects and classes, in memory and in the store.

What a class says of its sandboxes (when they sleep, their variables) holds as long as the class
does, also while no Worker runs.
"""

from collections.abc import Mapping

import msgspec

from atoll.engine.objects.projects import Stored, applied
from atoll.engine.store.database import Database
from atoll.wire.egress import EgressDefaults
from atoll.wire.objects import ProjectConfig, WorkerClass
from atoll.wire.sandbox import NamespaceConfig


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """A class and the project whose Worker has it."""

    project: str
    cls: WorkerClass


class Registry:
    """Projects by name, classes by namespace.

    Args:
        database: where they are kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._projects: dict[str, Stored] = {}
        self._classes: dict[str, Known] = {}

    async def load(self) -> None:
        """Read everything; once, before anything else."""
        for name, body in await self._database.read("SELECT name, body FROM projects", ()):
            self._projects[name] = msgspec.json.decode(body, type=Stored)
        for name, body in await self._database.read("SELECT namespace, body FROM classes", ()):
            self._classes[name] = msgspec.json.decode(body, type=Known)

    def known(self, namespace: str) -> Known | None:
        """Return the class of a namespace, if a Worker ever had one."""
        return self._classes.get(namespace)

    def all(self) -> list[str]:
        """Return every namespace that has a class."""
        return list(self._classes)

    def namespaces(self, project: str) -> list[str]:
        """Return the namespaces whose class is in the Worker of *project*."""
        return [name for name, known in self._classes.items() if known.project == project]

    def deleting(self) -> list[tuple[str, str]]:
        """Return project and namespace of what a migration deleted and is not gone yet."""
        return [(name, space) for name, one in self._projects.items() for space in one.deleting]

    async def configure(self, name: str, config: ProjectConfig) -> Stored:
        """Apply what is new in *config*; raise as `projects.applied`."""
        stored = applied(name, self._projects.get(name, Stored()), config)
        await self._save(name, stored)
        return stored

    async def deleted(self, name: str, namespace: str) -> None:
        """Remember that nothing of a deleted *namespace* is left."""
        stored = self._projects[name]
        left = [one for one in stored.deleting if one != namespace]
        await self._save(name, msgspec.structs.replace(stored, deleting=left))

    async def _save(self, name: str, stored: Stored) -> None:
        if stored == self._projects.get(name):
            return
        await self._database.execute(
            "INSERT OR REPLACE INTO projects VALUES (?, ?)", (name, msgspec.json.encode(stored))
        )
        self._projects[name] = stored

    async def attach(self, project: str, classes: list[WorkerClass]) -> list[str]:
        """Take over the classes of a Worker; return the namespaces whose class changed."""
        changed = []
        for cls in classes:
            known = Known(project=project, cls=cls)
            if self._classes.get(cls.namespace) != known:
                await self._database.execute(
                    "INSERT OR REPLACE INTO classes VALUES (?, ?)",
                    (cls.namespace, msgspec.json.encode(known)),
                )
                self._classes[cls.namespace] = known
                changed.append(cls.namespace)
        return changed

    def effective(self, namespace: str, config: NamespaceConfig) -> NamespaceConfig:
        """Return *config* with what the class of the namespace says above it."""
        known = self._classes.get(namespace)
        if known is None:
            return config
        options = known.cls.options
        return msgspec.structs.replace(
            config,
            env=_above(options.env, config.env),
            labels=_above(options.labels, config.labels),
            sleep_after_ms=config.sleep_after_ms
            if options.sleep_after_ms is None
            else options.sleep_after_ms,
            egress=_egress(options.egress, config.egress),
            secrets=config.secrets | options.secrets,
            enable_internet=config.enable_internet
            if options.enable_internet is None
            else options.enable_internet,
        )


def _egress(upper: EgressDefaults, lower: EgressDefaults) -> EgressDefaults:
    """Return *lower* with every field that *upper* gives."""
    given = {name: getattr(upper, name) for name in EgressDefaults.__struct_fields__}
    return msgspec.structs.replace(lower, **{name: v for name, v in given.items() if v})


def _above(upper: Mapping[str, str], lower: Mapping[str, str]) -> dict[str, str]:
    return dict(lower) | dict(upper)
