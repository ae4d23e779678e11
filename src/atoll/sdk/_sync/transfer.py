"""Files and folders between this host and a sandbox, as one stream with progress."""

from contextlib import closing
from pathlib import Path

from atoll.sdk import _io, _archive, _arguments, _shared
from atoll.sdk._archive import Progress
from atoll.sdk._sync.files import Files
from atoll.sdk._sync.transport import ConnectionLostError, chunks_of
from atoll.wire import files, ops


class Transfers(Files):
    """Transfers of a sandbox or session."""

    def upload(
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
        mode = _io.in_thread(_archive.file_mode, path)
        if mode is not None:
            pieces = _io.pieces(_archive.counted(_archive.read(path), progress))
            done = self.write_file(remote, pieces, mode=mode)
            return files.UploadResult(path=done.path, files=1, size=done.size)
        wanted = files.UploadRequest(path=remote, session=self._session, outside_links=True)
        content = _io.pieces(_archive.counted(_archive.pack(path), progress))
        return self._call(ops.UPLOAD, wanted, content=content)

    def download(
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
        if (self.stat(remote)).type != "directory":
            return self._download_file(remote, target, progress)
        wanted = files.DownloadRequest(
            path=remote, session=self._session, excludes=excludes, gitignore=gitignore
        )
        self._address.ensure()
        call = _shared.build_call(ops.DOWNLOAD, self._address.params, wanted)
        with _archive.Incoming(target) as incoming:
            try:
                with self._address.transport.send(call, ready=self._address.ready) as answer:
                    _receive(incoming, chunks_of(answer), progress)
            except ConnectionLostError as error:
                raise _shared.lost("download", str(error)) from error
            _io.in_thread(incoming.finish_folder)
        return target

    def _download_file(self, remote: str, local: Path, progress: Progress | None) -> Path:
        with _archive.Incoming(local) as incoming:
            with self.read_file_stream(remote) as stream:
                mode = (stream.metadata()).mode
                _receive(incoming, stream.chunks(), progress)
            _io.in_thread(incoming.finish_file, mode)
        return local


def _receive(
    incoming: _archive.Incoming, stream: _io.Stream[bytes], progress: Progress | None
) -> None:
    count = 0
    with closing(stream) as chunks:
        for chunk in chunks:
            _io.in_thread(incoming.write, chunk)
            count += len(chunk)
            _io.call(progress, count)
