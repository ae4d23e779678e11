"""Which namespace each class of a project has: decided once, then changed by migrations only.

A class keeps its namespace when it is renamed, so its sandboxes keep everything; a class that is
deleted takes its sandboxes along. Each migration is applied once, in order, known by its tag.
"""

import msgspec

from atoll.errors import InvalidConfigError
from atoll.wire.objects import Migration, ProjectConfig


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A project in the store. `deleting`: namespaces whose sandboxes are still to be destroyed."""

    namespaces: dict[str, str] = {}
    tag: str | None = None
    deleting: list[str] = []


def applied(name: str, stored: Stored, config: ProjectConfig) -> Stored:
    """Return the project after all migrations of *config* that it has not seen.

    Args:
        name: of the project.
        stored: as it is.
        config: as its configuration wants it.

    Raises:
        InvalidConfigError: a migration cannot be applied; nothing is changed then.
    """
    change = _Change(name, stored, config)
    for migration in _unseen(stored, config):
        change.apply(migration)
    for class_name in config.classes:
        change.add(class_name)
    return Stored(
        namespaces=change.namespaces,
        tag=config.migrations[-1].tag if config.migrations else stored.tag,
        deleting=change.deleting,
    )


def _unseen(stored: Stored, config: ProjectConfig) -> list[Migration]:
    tags = [migration.tag for migration in config.migrations]
    if twice := {tag for tag in tags if tags.count(tag) > 1}:
        raise InvalidConfigError(
            f"the migration tag {min(twice)!r} stands there twice",
            context={"tag": min(twice)},
            suggestion="give every migration a tag of its own",
        )
    if stored.tag is None or not tags:
        return config.migrations
    if stored.tag not in tags:
        raise InvalidConfigError(
            f"the migration {stored.tag!r}, which was applied last, is not in the configuration",
            context={"tag": stored.tag, "tags": tags},
            suggestion="keep applied migrations as they are, and add new ones after them",
        )
    return config.migrations[tags.index(stored.tag) + 1 :]


class _Change:
    def __init__(self, name: str, stored: Stored, config: ProjectConfig) -> None:
        self._name = name
        self._config = config
        self.namespaces = dict(stored.namespaces)
        self.deleting = list(stored.deleting)

    def apply(self, migration: Migration) -> None:
        for renamed in migration.renamed_classes:
            if renamed.to in self.namespaces:
                raise _impossible(migration, f"there is a class {renamed.to} already")
            self.namespaces[renamed.to] = self._take(migration, renamed.from_)
        for class_name in migration.deleted_classes:
            if class_name in self._config.classes and not self._comes_again(migration, class_name):
                raise _impossible(migration, f"a binding still uses the class {class_name}")
            self.deleting.append(self._take(migration, class_name))
        for class_name in migration.new_sqlite_classes:
            self.add(class_name)

    def _take(self, migration: Migration, class_name: str) -> str:
        if class_name not in self.namespaces:
            raise _impossible(migration, f"there is no class {class_name}")
        return self.namespaces.pop(class_name)

    def _comes_again(self, migration: Migration, class_name: str) -> bool:
        later = self._config.migrations[self._config.migrations.index(migration) :]
        return any(
            class_name in one.new_sqlite_classes
            or any(renamed.to == class_name for renamed in one.renamed_classes)
            for one in later
        )

    def add(self, class_name: str) -> None:
        if class_name in self.namespaces:
            return
        wanted = self._config.classes.get(class_name) or f"{self._name}-{class_name.lower()}"
        taken = {*self.namespaces.values(), *self.deleting}
        free = [wanted, *(f"{wanted}-{number}" for number in range(2, len(taken) + 3))]
        self.namespaces[class_name] = next(name for name in free if name not in taken)


def _impossible(migration: Migration, why: str) -> InvalidConfigError:
    return InvalidConfigError(
        f"the migration {migration.tag!r} cannot be applied: {why}",
        context={"tag": migration.tag},
        suggestion="correct the migration; nothing was changed",
    )
