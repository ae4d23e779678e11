"""The digest of the recipe decides whether the base image is the wanted one."""

import msgspec

from atoll.images.recipe import PYTHONS, Recipe, image_document

RECIPE = Recipe(suite="bookworm", machine="x86_64", sources=("deb http://x bookworm main",))


def test_every_field_is_part_of_the_digest() -> None:
    changed = [
        msgspec.structs.replace(RECIPE, **{field.name: value})
        for field, value in zip(
            msgspec.structs.fields(Recipe),
            ["trixie", "aarch64", (), (), (), "node==1", (), 99],
            strict=True,
        )
    ]
    assert len({recipe.digest for recipe in (RECIPE, *changed)}) == len(changed) + 1


def test_equal_recipes_have_equal_digests() -> None:
    same = msgspec.json.decode(msgspec.json.encode(RECIPE), type=Recipe)
    assert same.digest == RECIPE.digest


def test_all_versions_are_pinned() -> None:
    assert all("==" in name for name in (*RECIPE.wheels, RECIPE.node))


def test_wheels_for_a_newer_c_library_are_not_taken() -> None:
    assert "manylinux_2_36_x86_64" in RECIPE.wheel_platforms
    assert "manylinux_2_37_x86_64" not in RECIPE.wheel_platforms
    assert "manylinux2014_x86_64" in RECIPE.wheel_platforms


def test_each_suite_has_its_python_and_platforms() -> None:
    for suite, python in PYTHONS.items():
        recipe = msgspec.structs.replace(RECIPE, suite=suite)
        assert recipe.python == python
        assert recipe.wheel_platforms


def test_the_document_counts_one_history_entry_for_the_one_layer() -> None:
    """buildah 1.28 fails after the first step when there are fewer."""
    document = image_document(RECIPE, "ab" * 32, "2025-01-01T00:00:00Z")
    assert document["rootfs"] == {"type": "layers", "diff_ids": ["sha256:" + "ab" * 32]}
    assert isinstance(document["history"], list)
    assert len(document["history"]) == 1
    assert document["architecture"] == "amd64"
