from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from atoll.engine.bare.parts import BareLayers
from atoll.engine.storage import copies
from atoll.engine.store.record import InForce, Mounted, Record
from atoll.errors import SandboxNotFoundError, ValidationFailedError
from atoll.wire.sandbox import Limits, State

VOLUMES = {
    "/plain": Mounted(name="plain", layer_id="vol-1"),
    "/a": Mounted(name="a", layer_id="vol-2", private=True),
    "/b": Mounted(name="b", layer_id="vol-3", private=True),
}
FORCE = InForce(
    image="i",
    digest="sha256:0",
    instance_type="lite",
    level="container",
    runtime="runc",
    limits=Limits(memory=1, cpu=1, disk=1, pids=1),
    volumes=VOLUMES,
)
RECORD = Record(
    namespace="N",
    id="box",
    state=State.RUNNING,
    layer_id="l",
    host_ref="e-1",
    created_at=datetime.now(UTC),
    in_force=FORCE,
)


def test_only_private_volumes_are_copied_and_copies_are_named_by_the_start() -> None:
    assert copies.names("e-1", VOLUMES) == {"/a": "cow-e-1-0", "/b": "cow-e-1-1"}


def test_the_copy_of_a_running_sandbox_is_found_by_the_volumes_name() -> None:
    assert copies.of_sandbox(RECORD, "box", "b") == (VOLUMES["/b"], "cow-e-1-1")


@pytest.mark.parametrize("volume", ["plain", "other"])
def test_what_is_no_copy_is_not_published(volume: str) -> None:
    """Of a volume that others write to, nobody could say who made what is in it."""
    with pytest.raises(ValidationFailedError):
        copies.of_sandbox(RECORD, "box", volume)


def test_a_sandbox_that_does_not_run_has_no_copy() -> None:
    stopped = msgspec.structs.replace(RECORD, state=State.STOPPED, host_ref=None)
    with pytest.raises(ValidationFailedError):
        copies.of_sandbox(stopped, "box", "a")
    with pytest.raises(SandboxNotFoundError):
        copies.of_sandbox(None, "box", "a")


def test_copies_are_told_from_layers_and_from_those_of_other_starts() -> None:
    layers = ["vol-1", "e-1", "cow-e-1-0", "cow-e-1-12", "cow-e-11-0", "cow-e-2-0"]
    assert copies.of_starts(layers, ["e-1"]) == {"cow-e-1-0", "cow-e-1-12"}


async def test_all_copies_of_a_start_go_and_nothing_else(tmp_path: Path) -> None:
    layers = BareLayers(tmp_path)
    for name in ("vol-2", "vol-3"):
        await layers.create(name, 1)
    for host_ref in ("e-1", "e-11"):
        await copies.make(layers, host_ref, VOLUMES)
    await copies.drop(layers, "e-1")
    await copies.drop(layers, "e-1")
    assert sorted(await layers.list()) == ["cow-e-11-0", "cow-e-11-1", "vol-2", "vol-3"]
