from typing import Any

import pytest

from atoll.engine.engine import Engine
from atoll.errors import (
    ContainerUnavailableError,
    FilesystemError,
    ReadOnlyError,
    SandboxError,
)
from atoll.wire.frames import Kind
from integration.engine.scripted import Peer, World


@pytest.mark.parametrize("refusal", [ReadOnlyError("read-only"), FilesystemError("I/O error")])
@pytest.mark.parametrize("failed", [True, False])
async def test_what_a_store_that_shut_itself_refuses_may_be_tried_again(
    engine: Engine,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    refusal: SandboxError,
    failed: bool,
) -> None:
    """A caller who is told that a file cannot be written gives up; this one only has to wait."""

    async def refuses(peer: Peer, _header: dict[str, Any]) -> None:
        await peer.send(Kind.ERROR, refusal.to_wire())

    async def has_failed() -> bool:
        return failed

    world.runtime.scripts["fs.mkdir"] = refuses
    monkeypatch.setattr(world.layers, "has_failed", has_failed)
    with pytest.raises(SandboxError) as caught:
        async with engine.sandbox("N", "box").use() as endpoint:
            await endpoint.call({"op": "fs.mkdir", "path": "/workspace/d"})
    assert caught.type is (ContainerUnavailableError if failed else type(refusal))
    assert caught.value.retryable == failed
