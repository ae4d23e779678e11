"""What is stored is found; what somebody needs is never removed; half of nothing is ever seen."""

import os
from pathlib import Path

import pytest

from atoll.errors import ImageNotFoundError, ResourceBusyError
from atoll.images.catalog import Catalog
from atoll.images.layout import Image, Places, Record

A, B, C = ("a" * 64, "b" * 64, "c" * 64)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    places = Places(tmp_path / "images")
    places.make()
    return Catalog(places)


def add(catalog: Catalog, name: str, digest: str, *layers: str, created: float = 1.0) -> None:
    places = catalog._places
    for layer in layers:
        with places.scratch() as scratch:
            (scratch / "new").mkdir()
            catalog.add_layer(scratch / "new", layer)
    record = Record(
        digest=digest,
        layers=layers,
        document={"config": {"WorkingDir": "/srv"}},
        created_at=created,
        sizes=tuple(100 for _ in layers),
    )
    catalog.add(record, name)


def find(catalog: Catalog, name: str) -> Image:
    return catalog.find(name, (name,))


def test_an_image_is_found_by_name_and_by_digest_with_its_top_layer_first(
    catalog: Catalog,
) -> None:
    add(catalog, "x/y:1", A, B, C)
    image = find(catalog, "x/y:1")
    assert [path.name for path in image.layers] == [C, B]
    assert image.config.workdir == "/srv"
    assert find(catalog, image.digest).layers == image.layers


def test_a_layer_that_occurs_twice_is_mounted_once(catalog: Catalog) -> None:
    """Overlay refuses the same directory twice; empty layers repeat in many images."""
    add(catalog, "x:1", A, B, C, B)
    assert [path.name for path in find(catalog, "x:1").layers] == [B, C]


def test_the_first_stored_candidate_serves(catalog: Catalog) -> None:
    add(catalog, "atoll/base:latest", A, B)
    image = catalog.find(
        "cloudflare/sandbox", ("docker.io/cloudflare/sandbox:latest", "atoll/base:latest")
    )
    assert image.reference == "cloudflare/sandbox"
    assert image.digest == f"sha256:{A}"


def test_a_missing_image_says_how_to_get_it(catalog: Catalog) -> None:
    with pytest.raises(ImageNotFoundError) as caught:
        catalog.find("atoll/base", ("atoll/base:latest",))
    assert "build-base" in str(caught.value.suggestion)
    with pytest.raises(ImageNotFoundError) as caught:
        find(catalog, "docker.io/library/python:3")
    assert "pull" in str(caught.value.suggestion)


def test_a_name_that_looks_like_a_path_stays_in_its_directory(catalog: Catalog) -> None:
    add(catalog, "x/../../../etc/y:1", A, B)
    assert [info.reference for info in catalog.infos()] == ["x/../../../etc/y:1"]


def test_a_shared_layer_counts_for_the_oldest_image(catalog: Catalog) -> None:
    add(catalog, "new:1", B, A, C, created=2)
    add(catalog, "base:1", A, A, created=1)
    assert {info.reference: info.size for info in catalog.infos()} == {"base:1": 100, "new:1": 100}


def test_prune_keeps_what_has_a_name(catalog: Catalog) -> None:
    add(catalog, "x:1", A, A)
    assert catalog.prune(settle=0) == 0
    assert find(catalog, "x:1").layers[0].is_dir()


def test_prune_removes_an_image_without_name_and_the_layers_only_it_had(catalog: Catalog) -> None:
    add(catalog, "x:1", A, A, B)
    add(catalog, "y:1", B, A, C)
    catalog._places.reference("x:1").unlink()
    assert catalog.prune(settle=0) == 1
    assert sorted(catalog.layer_ids()) == [A, C]
    with pytest.raises(ImageNotFoundError):
        find(catalog, f"sha256:{A}")


def test_prune_leaves_an_image_alone_that_was_just_found(catalog: Catalog) -> None:
    """A sandbox is being made from it and has not marked its use yet."""
    add(catalog, "x:1", A, A)
    os.utime(catalog._places.record(A), (1, 1))
    find(catalog, "x:1")
    catalog._places.reference("x:1").unlink()
    assert catalog.prune() == 0
    assert catalog.layer_ids() == [A]


def test_an_image_in_use_survives_prune_until_it_is_released(
    catalog: Catalog, tmp_path: Path
) -> None:
    add(catalog, "x:1", A, A)
    catalog.hold(A, "engine/sandbox", tmp_path)
    catalog.hold(A, "engine/sandbox", tmp_path)
    catalog._places.reference("x:1").unlink()
    assert catalog.prune(settle=0) == 0
    catalog.release(A, "engine/sandbox")
    catalog.release(A, "engine/sandbox")
    assert catalog.prune(settle=0) == 1


def test_a_use_of_an_engine_whose_state_is_gone_counts_no_more(
    catalog: Catalog, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    add(catalog, "x:1", A, A)
    catalog.hold(A, "e", state)
    with pytest.raises(ResourceBusyError) as caught:
        catalog.remove("x:1")
    assert caught.value.context["users"] == ["e"]
    state.rmdir()
    catalog.remove("x:1")
    assert catalog.infos() == []


def test_one_of_two_names_of_an_image_in_use_can_go(catalog: Catalog, tmp_path: Path) -> None:
    add(catalog, "x:1", A, A)
    add(catalog, "y:1", A, A)
    catalog.hold(A, "e", tmp_path)
    catalog.remove("x:1")
    with pytest.raises(ResourceBusyError):
        catalog.remove("y:1")
    assert catalog.layer_ids() == [A]


def test_removing_what_is_not_there_says_so_whatever_others_use(
    catalog: Catalog, tmp_path: Path
) -> None:
    add(catalog, "x:1", A, A)
    catalog.hold(A, "e", tmp_path)
    with pytest.raises(ImageNotFoundError):
        catalog.remove("y:1")
    assert [info.reference for info in catalog.infos()] == ["x:1"]


def test_what_killed_work_left_is_swept(catalog: Catalog) -> None:
    (catalog._places.root / "tmp/left/deep").mkdir(parents=True)
    catalog.sweep()
    assert catalog._places.leftovers() == []


def test_an_image_can_be_named_again_and_the_old_one_goes(catalog: Catalog) -> None:
    add(catalog, "x:1", A, A)
    add(catalog, "x:1", B, B)
    assert find(catalog, "x:1").digest == f"sha256:{B}"
    assert catalog.prune(settle=0) == 1
    assert catalog.layer_ids() == [B]
