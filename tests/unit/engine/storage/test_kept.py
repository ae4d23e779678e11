import uuid

import pytest

from atoll.engine.storage.kept import is_snapshot

UUID = uuid.UUID(int=1 << 127)


def test_an_id_of_a_snapshot_is_told_from_an_image() -> None:
    assert is_snapshot(str(uuid.uuid4()))


@pytest.mark.parametrize(
    "image", [None, "", "atoll/base", "sha256:" + "0" * 64, f"a{UUID}", f"{UUID}:x"]
)
def test_images_are_images(image: str | None) -> None:
    assert not is_snapshot(image)
