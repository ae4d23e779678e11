import pytest

from atoll.engine.objects.projects import Stored, applied
from atoll.errors import InvalidConfigError
from atoll.wire.objects import Migration, ProjectConfig, RenamedClass


def config(*migrations: Migration, **classes: str) -> ProjectConfig:
    return ProjectConfig(classes=classes, migrations=list(migrations))


V1 = Migration(tag="v1", new_sqlite_classes=["Old"])
V2 = Migration(tag="v2", renamed_classes=[RenamedClass(from_="Old", to="New")])


def test_a_renamed_class_keeps_its_namespace() -> None:
    first = applied("shop", Stored(), config(V1, Old="shop-old"))
    assert first == Stored(namespaces={"Old": "shop-old"}, tag="v1")
    second = applied("shop", first, config(V1, V2, New="shop-new"))
    assert second == Stored(namespaces={"New": "shop-old"}, tag="v2")
    assert applied("shop", second, config(V1, V2, New="shop-new")) == second


def test_an_engine_that_sees_the_whole_history_at_once_decides_the_same() -> None:
    at_once = applied("shop", Stored(), config(V1, V2, New="shop-new"))
    assert at_once.namespaces == {"New": "shop-old"}


def test_a_deleted_class_takes_its_sandboxes_along_and_a_new_one_of_the_name_is_empty() -> None:
    stored = Stored(namespaces={"Old": "shop-old"}, tag="v1")
    gone = applied("shop", stored, config(V1, Migration(tag="v2", deleted_classes=["Old"])))
    assert gone == Stored(namespaces={}, tag="v2", deleting=["shop-old"])
    again = config(
        V1,
        Migration(tag="v2", deleted_classes=["Old"]),
        Migration(tag="v3", new_sqlite_classes=["Old"]),
        Old="shop-old",
    )
    assert applied("shop", gone, again).namespaces == {"Old": "shop-old-2"}
    assert applied("shop", stored, again).namespaces == {"Old": "shop-old-2"}


def test_classes_without_migrations_are_there_too() -> None:
    assert applied("shop", Stored(), config(Box="boxes")).namespaces == {"Box": "boxes"}


def test_a_namespace_belongs_to_one_class() -> None:
    swapped = config(
        V1, V2, Migration(tag="v3", new_sqlite_classes=["Old"]), Old="shop-old", New="shop-new"
    )
    assert applied("shop", Stored(), swapped).namespaces == {"New": "shop-old", "Old": "shop-old-2"}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (config(V1, V1, Old="o"), "twice"),
        (config(V2, New="n"), "no class Old"),
        (config(V1, Migration(tag="x", deleted_classes=["Old"]), Old="o"), "binding"),
        (config(Migration(tag="x", deleted_classes=["No"])), "no class No"),
        (config(Migration(tag="x", new_sqlite_classes=["Old", "New"]), V2), "already"),
    ],
)
def test_an_impossible_migration_says_why_and_changes_nothing(
    wrong: ProjectConfig, why: str
) -> None:
    with pytest.raises(InvalidConfigError, match=why):
        applied("shop", Stored(), wrong)


def test_a_configuration_without_migrations_changes_nothing() -> None:
    stored = Stored(namespaces={"Old": "o"}, tag="v9")
    assert applied("shop", stored, config(Old="x")) == stored


def test_applied_migrations_cannot_be_taken_back() -> None:
    with pytest.raises(InvalidConfigError, match="v9"):
        applied("shop", Stored(tag="v9"), config(V1, Old="o"))
