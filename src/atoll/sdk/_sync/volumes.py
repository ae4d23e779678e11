"""Named volumes, and their files where no sandbox is needed."""

from contextlib import closing

from atoll.sdk import _io, _arguments, _shared
from atoll.sdk._sync.files import Content
from atoll.sdk._sync.transport import ConnectionLostError, Transport, chunks_of
from atoll.wire import ops
from atoll.wire.base import Empty
from atoll.wire.volumes import (
    CreateVolume,
    ListVolumeFiles,
    ListVolumes,
    MakeVolumeFolder,
    MoveVolumeFile,
    PublishVolume,
    RemoveVolumeFile,
    UpdateVolume,
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

    def info(self) -> VolumeInfo:
        """Return its limits, what it takes, and which sandboxes use it.

        Raises:
            VolumeNotFoundError: there is no such volume.
        """
        return self._transport.call(ops.GET_VOLUME, self._place, Empty())

    def resize(self, size: int | str) -> VolumeInfo:
        """Give it another limit, also while sandboxes use it.

        Args:
            size: bytes, or text like "500MB" or "2GB".

        Raises:
            DiskQuotaExceededError: there is more in it than that; nothing is changed.
            ResourceBusyError: it is in use on a host whose store resizes at rest only (ext4).
            VolumeNotFoundError: there is no such volume.
        """
        request = UpdateVolume(size=_arguments.size_bytes("size", size))
        return self._transport.call(ops.RESIZE_VOLUME, self._place, request)

    def publish(self, sandbox: str) -> VolumeInfo:
        """Make what a sandbox has in its copy of this private volume the content of it.

        Others have it from their next start on. Publish only what a sandbox made that ran nothing
        you do not trust: others will run what is in there.

        Args:
            sandbox: id of one that runs.

        Raises:
            ValidationFailedError: it does not run with a copy of this volume.
            ResourceBusyError: another one was published since the copy was made.
            SandboxNotFoundError: there is no such sandbox.
            VolumeNotFoundError: there is no such volume.
        """
        request = PublishVolume(sandbox=sandbox)
        return self._transport.call(ops.PUBLISH_VOLUME, self._place, request)

    def read(self, path: str) -> bytes:
        """Return the content of a file; raise as `read_stream`."""
        return b"".join(list(self.read_stream(path)))

    def read_stream(self, path: str) -> _io.Stream[bytes]:
        """Yield the content of a file, of any size.

        Raises:
            FileNotFoundError: there is no such file.
            IsDirectoryError: it is a folder.
            SecurityError: a part of the path is a link, or it is no regular file.
            VolumeNotFoundError: there is no such volume.
        """
        call = _shared.build_call(ops.READ_VOLUME, self._place, VolumePath(path=path))
        try:
            with (
                self._transport.send(call) as answer,
                closing(chunks_of(answer)) as chunks,
            ):
                for chunk in chunks:
                    yield chunk
        except ConnectionLostError as error:
            raise _shared.lost("read_volume", str(error)) from error

    def write(self, path: str, content: Content, *, encoding: str | None = None) -> VolumeWritten:
        """Write a file; folders are made. It is complete and durable when this returns.

        A file that was there keeps its owner and mode, a new one is root's. A failed write leaves
        the old file. A read-only volume can be written here too.

        Args:
            path: of the file.
            content: text, bytes, a file object, or an iterable; streamed, of any size.
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
            return self._transport.call(ops.WRITE_VOLUME, self._place, request, content=data)
        _arguments.check_streamed_encoding(encoding)
        pieces = _io.pieces(content)
        return self._transport.call(ops.WRITE_VOLUME, self._place, request, content=pieces)

    def make_dir(self, path: str, *, parents: bool = True) -> None:
        """Make a folder, of root.

        Args:
            path: of the folder.
            parents: make those on the way too, and be content with one that is there.

        Raises:
            FileExistsError: the name is taken (without *parents*).
            FileNotFoundError: a folder on the way is missing (without *parents*).
            NotDirectoryError: a file is in the way.
            DiskQuotaExceededError: the volume is full.
            SecurityError: a folder in the path is a link.
        """
        request = MakeVolumeFolder(path=path, parents=parents)
        self._transport.call(ops.MAKE_VOLUME_FOLDER, self._place, request)

    def rename(self, path: str, target: str, *, overwrite: bool = False) -> None:
        """Give a file or folder another path, in one step.

        Args:
            path: of what is there; a link is renamed itself.
            target: its new path; the folder it lies in is there.
            overwrite: replace a file, or an empty folder by a folder.

        Raises:
            FileNotFoundError: there is nothing, or no such folder.
            FileExistsError: *target* is taken.
            SecurityError: a folder in one of the paths is a link.
        """
        request = MoveVolumeFile(path=path, target=target, overwrite=overwrite)
        self._transport.call(ops.MOVE_IN_VOLUME, self._place, request)

    def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file or folder. It is gone in one step, also when it is large.

        Args:
            path: of what is there; a link is removed itself.
            recursive: a folder too, with all that is in it; without, only an empty one.

        Raises:
            FileNotFoundError: there is nothing.
            FilesystemError: the folder is not empty.
            SecurityError: a folder in the path is a link.
        """
        request = RemoveVolumeFile(path=path, recursive=recursive)
        self._transport.call(ops.REMOVE_IN_VOLUME, self._place, request)

    def list(
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
        return self._transport.call(ops.LIST_VOLUME, self._place, request)


class VolumeShelf:
    """The volumes of an engine: ``env.volumes``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self,
        name: str,
        *,
        size: int | str = "1GB",
        read_only: bool = False,
        shared: bool = False,
        private: bool = False,
        namespace: str = "Sandbox",
    ) -> Volume:
        """Make a volume for the sandboxes of a namespace; the same one again is no error.

        Args:
            name: 1 to 63 letters, digits, ``-``, ``_`` or ``.``.
            size: what it may hold: bytes, or text like "500MB" or "2GB".
            read_only: sandboxes only read it; it is filled with `Volume.write`.
            shared: several sandboxes may write to it at the same time. Else one sandbox that runs
                has it for itself.
            private: each start of a sandbox writes to a copy of its own, which goes when it sleeps.
                What they begin with changes by calls to the engine only (`write`, `publish`).
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
            private=private,
        )
        self._transport.call(ops.CREATE_VOLUME, {"namespace": namespace}, request)
        return Volume(self._transport, namespace, name)

    def get(self, name: str, *, namespace: str = "Sandbox") -> Volume:
        """Return a volume.

        Raises:
            VolumeNotFoundError: there is none of this name.
        """
        volume = Volume(self._transport, namespace, name)
        volume.info()
        return volume

    def list(
        self, *, namespace: str = "Sandbox", cursor: str | None = None, limit: int = 100
    ) -> VolumePage:
        """Return one page of a namespace's volumes, in order of name.

        Args:
            namespace: its name.
            cursor: `cursor` of the page before.
            limit: most entries of this page.
        """
        request = ListVolumes(cursor=cursor, limit=limit)
        return self._transport.call(ops.LIST_VOLUMES, {"namespace": namespace}, request)

    def delete(self, volume: Volume | str, *, namespace: str = "Sandbox") -> None:
        """Delete a volume with all its files. Idempotent.

        Raises:
            VolumeInUseError: a sandbox that runs has it mounted.
        """
        if isinstance(volume, Volume):
            namespace, volume = volume.namespace, volume.name
        place = {"namespace": namespace, "volume": volume}
        self._transport.call(ops.DELETE_VOLUME, place, Empty())
