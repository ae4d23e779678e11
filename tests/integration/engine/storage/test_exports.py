import hashlib
import json
from collections.abc import AsyncIterator

import pytest

from atoll.engine.engine import Engine
from atoll.engine.storage.portable import MAGIC
from atoll.errors import (
    ImageNotFoundError,
    InvalidSandboxIdError,
    SnapshotNotFoundError,
    ValidationFailedError,
)
from atoll.wire.snapshots import ListSnapshots, TakeSnapshot
from integration.engine.scripted import World


async def stream(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def exported(engine: Engine, **wanted: object) -> bytes:
    box = engine.sandbox("N", "box")
    await box.ensure_running()
    taken = await engine.snapshots.take(box, TakeSnapshot(**wanted))  # type: ignore[arg-type]
    _, body = await engine.exports.export("N", taken.id)
    return b"".join([piece async for piece in body])


def sealed(file: bytes) -> bytes:
    """What somebody makes of a file who knows what belongs at its end."""
    return file[:-32] + hashlib.sha256(file[:-32]).digest()


async def test_an_import_is_a_snapshot_of_its_own_in_any_namespace(engine: Engine) -> None:
    file = await exported(engine, name="first", labels={"a": "b"})
    taken = await engine.exports.receive("Other", stream(file))
    assert (taken.namespace, taken.name, taken.labels) == ("Other", "first", {"a": "b"})
    assert (await engine.snapshots.get("Other", taken.id)).snapshot == taken
    assert len(await engine.snapshots.list("N", ListSnapshots(), {})) == 1


async def test_no_variable_or_option_of_the_origin_is_in_the_file(
    engine: Engine, world: World
) -> None:
    box = engine.sandbox("N", "box")
    await box.set_env({"TOKEN": "very-secret"})
    assert b"very-secret" not in await exported(engine)


async def test_of_a_refused_import_nothing_is_left(engine: Engine, world: World) -> None:
    file = await exported(engine, name="first")
    layers = set(await world.layers.list())
    kept = set(await world.layers.snapshots.list())
    for broken in (
        file[:-50], file[:-1], file + b"x", b"", sealed(file.replace(b'"box"', b'"../box"')),
        file.replace(b'"first"', b'"other"'), sealed(file[:-50]),
    ):  # fmt: skip
        with pytest.raises((ValidationFailedError, InvalidSandboxIdError)):
            await engine.exports.receive("N", stream(broken))
    assert set(await world.layers.list()) == layers
    assert set(await world.layers.snapshots.list()) == kept


async def test_an_image_that_is_not_here_is_named(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = await exported(engine)

    async def obtain(reference: str) -> None:
        raise ImageNotFoundError(reference)

    monkeypatch.setattr(engine.images, "obtain", obtain)
    with pytest.raises(ImageNotFoundError) as caught:
        await engine.exports.receive("N", stream(file))
    assert caught.value.context["image"] == "atoll/base"


async def test_what_is_not_there_cannot_leave(engine: Engine) -> None:
    with pytest.raises(SnapshotNotFoundError):
        await engine.exports.export("N", "none")


async def test_an_image_is_taken_by_its_digest_only(engine: Engine) -> None:
    """A name could have an image pulled from wherever the file says."""
    line, _, rest = (await exported(engine)).partition(b"\n")
    told = json.loads(line.removeprefix(MAGIC))
    for change in (
        {"digest": "atoll/base"},
        {"digest": ""},
        {"image": "a\nb"},
        {"image": "x" * 999},
    ):
        file = sealed(MAGIC + json.dumps(told | change).encode() + b"\n" + rest)
        with pytest.raises(ValidationFailedError):
            await engine.exports.receive("N", stream(file))


async def test_a_type_that_is_unknown_here_becomes_one_with_as_much_disk(engine: Engine) -> None:
    line, _, rest = (await exported(engine)).partition(b"\n")
    told = json.loads(line.removeprefix(MAGIC)) | {"instance_type": "custom"}
    types = engine.settings.instance_types
    for disk, kind in ((1, min(types, key=lambda n: types[n].disk_mb)), (1 << 60, "lite")):
        file = sealed(MAGIC + json.dumps(told | {"disk": disk}).encode() + b"\n" + rest)
        taken = await engine.exports.receive("N", stream(file))
        found = (await engine.snapshots.get("N", taken.id)).in_force
        assert types[found.instance_type].disk_mb == types[kind].disk_mb
