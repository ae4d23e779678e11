"""Files and folders between this host and a sandbox, as one stream with progress."""

from contextlib import aclosing
from pathlib import Path

from atoll.sdk import _aio, _archive, _arguments, _shared
from atoll.sdk._archive import Progress
from atoll.sdk._async.files import Files
from atoll.sdk._async.transport import ConnectionLostError, chunks_of
from atoll.wire import files, ops


class Transfers(Files):
    """Transfers of a sandbox or session."""

    async def upload(
        self, local: str | Path, remote: str, *, progress: Progress | None = None
    ) -> files.UploadResult:
        """Copy a file or folder of this host into the sandbox; nothing partial is left there.

        Args:
            local: a file, or a folder whose content goes into the folder *remote*.
            remote: path in the sandbox, made if it is missing.
            progress: called with the number of bytes sent so far.
        """
        _arguments.callbacks(progress=progress)
        path = _archive.local_path("local", local)
        mode = await _aio.in_thread(_archive.file_mode, path)
        if mode is not None:
            pieces = _aio.pieces(_archive.counted(_archive.read(path), progress))
            done = await self.write_file(remote, pieces, mode=mode)
            return files.UploadResult(path=done.path, files=1, size=done.size)
        wanted = files.UploadRequest(path=remote, session=self._session, outside_links=True)
        content = _aio.pieces(_archive.counted(_archive.pack(path), progress))
        return await self._call(ops.UPLOAD, wanted, content=content)

    async def download(
        self,
        remote: str,
        local: str | Path,
        *,
        excludes: str | None = None,
        gitignore: bool = False,
        progress: Progress | None = None,
    ) -> Path:
        """Copy a file or folder of the sandbox to this host; it appears when it is complete.

        Args:
            remote: path in the sandbox.
            local: path here that does not exist yet; a file is replaced.
            excludes: globs of what to leave out of a folder, comma separated.
            gitignore: leave out what the ignore files of a folder name.
            progress: called with the number of bytes received so far.

        Raises:
            FileNotFoundError: there is nothing at *remote*.
            FileExistsError: *local* is a folder that is not empty.
            SecurityError: the archive would write outside of *local*.
        """
        _arguments.callbacks(progress=progress)
        target = _archive.local_path("local", local)
        if (await self.stat(remote)).type != "directory":
            return await self._download_file(remote, target, progress)
        wanted = files.DownloadRequest(
            path=remote, session=self._session, excludes=excludes, gitignore=gitignore
        )
        await self._address.ensure()
        call = _shared.build_call(ops.DOWNLOAD, self._address.params, wanted)
        with _archive.Incoming(target) as incoming:
            try:
                async with self._address.transport.send(call, ready=self._address.ready) as answer:
                    await _receive(incoming, chunks_of(answer), progress)
            except ConnectionLostError as error:
                raise _shared.lost("download", str(error)) from error
            await _aio.in_thread(incoming.finish_folder)
        return target

    async def _download_file(self, remote: str, local: Path, progress: Progress | None) -> Path:
        with _archive.Incoming(local) as incoming:
            async with self.read_file_stream(remote) as stream:
                mode = (await stream.metadata()).mode
                await _receive(incoming, stream.chunks(), progress)
            await _aio.in_thread(incoming.finish_file, mode)
        return local


async def _receive(
    incoming: _archive.Incoming, stream: _aio.Stream[bytes], progress: Progress | None
) -> None:
    count = 0
    async with aclosing(stream) as chunks:
        async for chunk in chunks:
            await _aio.in_thread(incoming.write, chunk)
            count += len(chunk)
            await _aio.call(progress, count)
