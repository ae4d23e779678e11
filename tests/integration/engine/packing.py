"""A sandbox that packs and unpacks as the tests say."""

from typing import Any

from atoll.errors import SandboxError
from atoll.wire.frames import Kind
from integration.engine.scripted import Peer, World

TAR = b"tar" * 400_000


class Inside:
    """What the agent packs, and what it was given to unpack."""

    def __init__(self, world: World) -> None:
        self.unpacked: list[bytes] = []
        self.seen = world.runtime.seen
        world.runtime.scripts |= {"fs.backup": self.backup, "fs.restore": self.restore}
        self.error: SandboxError | None = None
        self.cut = False
        self.account = b""
        self.packed = TAR

    async def backup(self, peer: Peer, header: dict[str, Any]) -> None:
        if self.error:
            await peer.send(Kind.ERROR, self.error.to_wire())
            return
        await peer.send(Kind.REPLY, {"path": header["path"]})
        for start in range(0, len(self.packed), 100_000):
            await peer.send(Kind.DATA, self.packed[start : start + 100_000])
        if not self.cut:
            told = {"files": 3, "size": 99, "skipped": ["s"], "changed": []}
            await peer.send(Kind.END, self.account or told)

    async def restore(self, peer: Peer, header: dict[str, Any]) -> None:
        if self.error:
            await peer.send(Kind.ERROR, self.error.to_wire())
            return
        body = bytearray()
        while (frame := await peer.next()).kind == Kind.DATA:
            body += frame.payload
        assert frame.kind == Kind.END
        self.unpacked.append(bytes(body))
        await peer.send(Kind.REPLY, {"path": header["path"], "files": 3, "size": 99})
