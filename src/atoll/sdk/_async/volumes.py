"""Named volumes, and their files where no sandbox is needed."""

from contextlib import aclosing

from atoll.sdk import _aio, _arguments, _shared
from atoll.sdk._async.files import Content
from atoll.sdk._async.transport import ConnectionLostError, Transport, chunks_of
from atoll.wire import ops
from atoll.wire.base import Empty
from atoll.wire.volumes import (
    CreateVolume,
    ListVolumeFiles,
    ListVolumes,
    VolumeFileList,
    VolumeInfo,
    VolumePage,
    VolumePath,
    VolumeWritten,
)


class Volume:
    """One volume. Its files are here whether sandboxes use it or not.

    Paths are from the volume's top. Links in it are followed inside sandboxes only.
    """

    def __init__(self, transport: Transport, namespace: str, name: str) -> None:
        self._transport = transport
        self.namespace = namespace
        self.name = name

    def __repr__(self) -> str:
        return f"<Volume {self.name} of {self.namespace} at {self._transport.endpoint.shown}>"

    @property
    def _place(self) -> dict[str, str]:
        return {"namespace": self.namespace, "volume": self.name}

    async def info(self) -> VolumeInfo:
        """Return its limits, what it takes, and which sandboxes use it.

        Raises:
            VolumeNotFoundError: there is no such volume.
        """
        return await self._transport.call(ops.GET_VOLUME, self._place, Empty())

    async def read(self, path: str) -> bytes:
        """Return the content of a file; raise as `read_stream`."""
        return b"".join([chunk async for chunk in self.read_stream(path)])

    async def read_stream(self, path: str) -> _aio.Stream[bytes]:
        """Yield the content of a file, of any size.

        Raises:
            FileNotFoundError: there is no such file.
            IsDirectoryError: it is a folder.
            SecurityError: a part of the path is a link, or it is no regular file.
            VolumeNotFoundError: there is no such volume.
        """
        call = _shared.build_call(ops.READ_VOLUME, self._place, VolumePath(path=path))
        try:
            async with (
                self._transport.send(call) as answer,
                aclosing(chunks_of(answer)) as chunks,
            ):
                async for chunk in chunks:
                    yield chunk
        except ConnectionLostError as error:
            raise _shared.lost("read_volume", str(error)) from error

    async def write(
        self, path: str, content: Content, *, encoding: str | None = None
    ) -> VolumeWritten:
        """Write a file; folders are made. It is complete and durable when this returns.

        A file that was there keeps its owner and mode, a new one is root's. A failed write leaves
        the old file. A read-only volume can be written here too.

        Args:
            path: of the file.
            content: text, bytes, a file object, or an (async) iterable; streamed, of any size.
            encoding: codec of text (UTF-8 when not given), or "base64" when *content* is that.

        Raises:
            DiskQuotaExceededError: the volume is full.
            SecurityError: a folder in the path is a link.
            IsDirectoryError: a folder has this path.
            VolumeNotFoundError: there is no such volume.
        """
        request = VolumePath(path=path)
        _arguments.check_content("content", content)
        if isinstance(content, str | bytes | bytearray | memoryview):
            data = _arguments.encode_content(content, encoding)
            return await self._transport.call(ops.WRITE_VOLUME, self._place, request, content=data)
        _arguments.check_streamed_encoding(encoding)
        pieces = _aio.pieces(content)
        return await self._transport.call(ops.WRITE_VOLUME, self._place, request, content=pieces)

    async def list(
        self, path: str = "", *, cursor: str | None = None, limit: int = 1_000
    ) -> VolumeFileList:
        """Return one page of a folder, in order of name.

        Args:
            path: of the folder; the volume's top by default.
            cursor: `cursor` of the page before.
            limit: most entries of this page, up to 1,000.

        Raises:
            FileNotFoundError: there is no such folder.
            NotDirectoryError: it is no folder.
            SecurityError: a part of the path is a link.
        """
        request = ListVolumeFiles(path=path, cursor=cursor, limit=limit)
        return await self._transport.call(ops.LIST_VOLUME, self._place, request)


class VolumeShelf:
    """The volumes of an engine: ``env.volumes``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(
        self,
        name: str,
        *,
        size: int | str = "1GB",
        read_only: bool = False,
        shared: bool = False,
        namespace: str = "Sandbox",
    ) -> Volume:
        """Make a volume for the sandboxes of a namespace; the same one again is no error.

        Args:
            name: 1 to 63 letters, digits, ``-``, ``_`` or ``.``.
            size: what it may hold: bytes, or text like "500MB" or "2GB".
            read_only: sandboxes only read it; it is filled with `Volume.write`.
            shared: several sandboxes may write to it at the same time. Else one sandbox that runs
                has it for itself.
            namespace: of the sandboxes.

        Raises:
            ValidationFailedError: name or size is malformed.
            FileExistsError: there is one of this name with other options.
            ContainerUnavailableError: the host's disk is too full (reason "capacity").
        """
        request = CreateVolume(
            name=name,
            size=_arguments.size_bytes("size", size),
            read_only=read_only,
            shared=shared,
        )
        await self._transport.call(ops.CREATE_VOLUME, {"namespace": namespace}, request)
        return Volume(self._transport, namespace, name)

    async def get(self, name: str, *, namespace: str = "Sandbox") -> Volume:
        """Return a volume.

        Raises:
            VolumeNotFoundError: there is none of this name.
        """
        volume = Volume(self._transport, namespace, name)
        await volume.info()
        return volume

    async def list(
        self, *, namespace: str = "Sandbox", cursor: str | None = None, limit: int = 100
    ) -> VolumePage:
        """Return one page of a namespace's volumes, in order of name.

        Args:
            namespace: its name.
            cursor: `cursor` of the page before.
            limit: most entries of this page.
        """
        request = ListVolumes(cursor=cursor, limit=limit)
        return await self._transport.call(ops.LIST_VOLUMES, {"namespace": namespace}, request)

    async def delete(self, volume: Volume | str, *, namespace: str = "Sandbox") -> None:
        """Delete a volume with all its files. Idempotent.

        Raises:
            VolumeInUseError: a sandbox that runs has it mounted.
        """
        if isinstance(volume, Volume):
            namespace, volume = volume.namespace, volume.name
        place = {"namespace": namespace, "volume": volume}
        await self._transport.call(ops.DELETE_VOLUME, place, Empty())
