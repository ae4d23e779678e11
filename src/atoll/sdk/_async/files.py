"""Files of a sandbox. Content travels as raw bytes, in both directions in constant memory.

Relative paths start at the working directory of the session (``/workspace`` by default). Every
call has the rights of the sandbox's user and cannot leave the sandbox.
"""

from collections.abc import AsyncIterable, Iterable, Sequence
from typing import IO, Any, Literal, TypeAlias, overload

from atoll.sdk import _aio, _arguments, _shared
from atoll.sdk._async.filestream import FileStream
from atoll.sdk._async.target import Target
from atoll.sdk._async.watch import WatchStream
from atoll.sdk._results import ReadFileResult, shape_content
from atoll.wire import files, ops

Bytes: TypeAlias = bytes | bytearray | memoryview
Content: TypeAlias = str | Bytes | IO[Any] | Iterable[bytes | str] | AsyncIterable[bytes | str]


class Files(Target):
    """File calls of a sandbox or session."""

    async def write_file(
        self,
        path: str,
        content: Content,
        *,
        encoding: str | None = None,
        mode: int | None = None,
        append: bool = False,
    ) -> files.WriteResult:
        """Write a file; parents are made. It is complete and durable when this returns.

        Args:
            path: of the file.
            content: text, bytes, a file object, or an (async) iterable; streamed, of any size.
            encoding: codec of text (UTF-8 when not given), or "base64" when *content* is that.
            mode: permission bits of the file, like 0o755; those of an existing file are kept.
            append: add to the end instead of replacing the file.

        Raises:
            SandboxError: `IsDirectoryError`, `ReadOnlyError`, `NoSpaceError`, … with the path. A
                failed write leaves the old file.
        """
        request = ops.WriteFile(path=path, session=self._session, mode=mode, append=append)
        _arguments.check_content("content", content)
        if isinstance(content, str | bytes | bytearray | memoryview):
            data = _arguments.encode_content(content, encoding)
            return await self._call(ops.WRITE_FILE, request, content=data)
        _arguments.check_streamed_encoding(encoding)
        return await self._call(ops.WRITE_FILE, request, content=_aio.pieces(content))

    @overload
    async def read_file(  # type: ignore[overload-overlap]  # the literals are taken first
        self,
        path: str,
        *,
        encoding: Literal["bytes"],
        offset: int = 0,
        length: int | None = None,
    ) -> ReadFileResult[bytes]: ...

    @overload
    async def read_file(  # type: ignore[overload-overlap]  # the literals are taken first
        self,
        path: str,
        *,
        encoding: Literal["none"],
        offset: int = 0,
        length: int | None = None,
    ) -> FileStream: ...

    @overload
    async def read_file(
        self,
        path: str,
        *,
        encoding: str | None = None,
        offset: int = 0,
        length: int | None = None,
    ) -> ReadFileResult[str]: ...

    async def read_file(
        self, path: str, *, encoding: str | None = None, offset: int = 0, length: int | None = None
    ) -> ReadFileResult[str] | ReadFileResult[bytes] | FileStream:
        """Return the content of a file.

        Args:
            path: of the file.
            encoding: None for text when it is valid UTF-8 and base64 else; "bytes" for `bytes`;
                "base64"; the name of a codec; "none" for a stream of any size.
            offset: byte to start at.
            length: bytes to read; None: to the end.

        Raises:
            FileNotFoundError: there is no file at the path.
            ValidationFailedError: it is not valid in the codec asked for.
        """
        _arguments.check_view(encoding)
        stream = self.read_file_stream(path, offset=offset, length=length)
        metadata = await stream.metadata()
        if encoding == "none":
            return stream
        content = b"".join([chunk async for chunk in stream])
        return shape_content(content, metadata, encoding)

    def read_file_stream(
        self, path: str, *, offset: int = 0, length: int | None = None
    ) -> FileStream:
        """Return the bytes of a file as an async iterator, with its metadata."""
        request = ops.ReadFile(path=path, session=self._session, offset=offset, length=length)
        _shared.check_request(request)
        return FileStream(self._address, request)

    async def mkdir(self, path: str, *, recursive: bool = False, mode: int | None = None) -> None:
        """Make a directory; with *recursive* its parents too, and it may exist already.

        Raises:
            FileExistsError: something stands at the path.
            FileNotFoundError: its parent does not exist.
        """
        request = files.MkdirRequest(
            path=path, session=self._session, recursive=recursive, mode=mode
        )
        await self._call(ops.MKDIR, request)

    async def delete_file(self, path: str, *, recursive: bool = False) -> None:
        """Delete a file, or with *recursive* a directory and everything below it."""
        request = files.DeleteRequest(path=path, session=self._session, recursive=recursive)
        await self._call(ops.DELETE_FILE, request)

    async def rename_file(self, source: str, target: str) -> None:
        """Give a file another name, replacing what has that name."""
        await self._call(ops.RENAME, self._transfer(source, target))

    async def move_file(self, source: str, target: str) -> None:
        """Move a file or directory, also to another file system."""
        await self._call(ops.MOVE, self._transfer(source, target))

    async def copy_file(self, source: str, target: str, *, recursive: bool = False) -> None:
        """Copy a file, or with *recursive* a directory."""
        await self._call(ops.COPY, self._transfer(source, target, recursive=recursive))

    def _transfer(
        self, source: str, target: str, *, recursive: bool = False
    ) -> files.TransferRequest:
        return files.TransferRequest(
            source=source, target=target, recursive=recursive, session=self._session
        )

    async def exists(self, path: str) -> bool:
        """Whether there is something at the path."""
        return (await self._call(ops.EXISTS, self._path(path))).exists

    path_exists = exists

    async def stat(self, path: str) -> files.FileInfo:
        """Return what is known about the file or directory; a final link is not followed.

        Raises:
            FileNotFoundError: there is nothing at the path.
        """
        return await self._call(ops.STAT, self._path(path))

    def _path(self, path: str) -> files.PathRequest:
        return files.PathRequest(path=path, session=self._session)

    async def set_permissions(
        self,
        path: str,
        mode: int | None = None,
        owner: str | int | None = None,
        group: str | int | None = None,
    ) -> files.FileInfo:
        """Change mode, owner or group; what is None stays."""
        request = files.PermissionsRequest(
            path=path, session=self._session, mode=mode, owner=owner, group=group
        )
        return await self._call(ops.SET_PERMISSIONS, request)

    async def list_files(
        self,
        path: str = ".",
        *,
        recursive: bool = False,
        include_hidden: bool = False,
        cursor: str | None = None,
        limit: int = 1000,
    ) -> files.FileList:
        """Return one page of a directory, sorted by path.

        Args:
            path: of the directory.
            recursive: everything below it as well; links are not followed.
            include_hidden: names that start with a dot as well.
            cursor: `cursor` of the page before.
            limit: most entries of this page.

        Raises:
            FileNotFoundError: there is no such directory.
            NotDirectoryError: the path is a file.
        """
        request = files.ListRequest(
            path=path,
            session=self._session,
            recursive=recursive,
            include_hidden=include_hidden,
            cursor=cursor,
            limit=limit,
        )
        return await self._call(ops.LIST_FILES, request)

    async def search_files(self, path: str, pattern: str, *, limit: int = 10_000) -> files.PathList:
        """Return the paths below *path* that match a glob.

        Args:
            path: where to begin.
            pattern: glob; one without a slash is compared with names only.
            limit: most paths; `truncated` says that there are more.
        """
        request = files.SearchRequest(
            path=path, session=self._session, pattern=pattern, limit=limit
        )
        return await self._call(ops.SEARCH_FILES, request)

    async def find_in_files(
        self,
        path: str,
        text: str,
        *,
        regex: bool = False,
        glob: str | None = None,
        limit: int = 10_000,
    ) -> files.MatchList:
        """Return the places in text files below *path* where a text stands.

        Args:
            path: where to begin.
            text: what to look for.
            regex: *text* is a regular expression of Python.
            glob: only files that match it.
            limit: most matches; `truncated` says that there are more.
        """
        request = files.FindRequest(
            path=path, session=self._session, text=text, regex=regex, glob=glob, limit=limit
        )
        return await self._call(ops.FIND_IN_FILES, request)

    async def replace_in_files(
        self, paths: Sequence[str], old: str, new: str
    ) -> files.Replacements:
        """Replace text in files; return how often in which of them."""
        request = files.ReplaceRequest(
            paths=_arguments.listed("paths", paths), old=old, new=new, session=self._session
        )
        return await self._call(ops.REPLACE_IN_FILES, request)

    def watch(
        self,
        path: str,
        *,
        recursive: bool = True,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
    ) -> WatchStream:
        """Return the changes at *path* as an async iterator of events.

        Args:
            path: a directory or a file.
            recursive: everything below it, also directories made later.
            include: globs; only these.
            exclude: globs; not these (default: .git, node_modules, .DS_Store).

        Raises:
            ValidationFailedError: both include and exclude are given.
        """
        included, excluded = _arguments.globs(include, exclude)
        request = files.WatchRequest(
            path=path,
            session=self._session,
            recursive=recursive,
            include=included,
            exclude=excluded,
        )
        _shared.check_request(request)
        return WatchStream(self._address, request)

    async def check_changes(
        self,
        path: str,
        *,
        since: str | None = None,
        recursive: bool = True,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
    ) -> files.Changes:
        """Return whether anything below *path* changed since an earlier version.

        Args:
            path: a file or directory.
            since: `version` of an earlier answer; None: this is the first.
            recursive: everything below it, not only the directory itself.
            include: globs; only these.
            exclude: globs; not these (default: .git, node_modules, .DS_Store).

        Returns:
            status ``unchanged``, ``changed`` or ``resync`` (the version given cannot be compared:
            `reason` says why), and the `version` for the next call.

        Raises:
            ValidationFailedError: both include and exclude are given.
        """
        included, excluded = _arguments.globs(include, exclude)
        request = files.ChangesRequest(
            path=path,
            session=self._session,
            since=since,
            recursive=recursive,
            include=included,
            exclude=excluded,
        )
        return await self._call(ops.CHECK_CHANGES, request)
