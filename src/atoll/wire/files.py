"""Files on the wire. Bodies of files are raw bytes, never part of these structs."""

from datetime import datetime

import msgspec

from atoll.wire.base import Request, Result


class PathRequest(Request, frozen=True, kw_only=True):
    """A path inside the sandbox; relative ones start at the session's cwd."""

    path: str
    session: str | None = None
    user: str | None = None


class MkdirRequest(PathRequest, frozen=True, kw_only=True):
    """Make a directory, with its parents when `recursive`."""

    recursive: bool = False
    mode: int | None = None


class DeleteRequest(PathRequest, frozen=True, kw_only=True):
    """Delete a file, or with `recursive` a directory and all below it."""

    recursive: bool = False


class TransferRequest(Request, frozen=True, kw_only=True):
    """Rename, move or copy inside the sandbox."""

    source: str
    target: str
    recursive: bool = False
    session: str | None = None
    user: str | None = None


class ListRequest(PathRequest, frozen=True, kw_only=True):
    """List a directory, one page at a time."""

    recursive: bool = False
    include_hidden: bool = False
    cursor: str | None = None
    limit: int = 1000


class PermissionsRequest(PathRequest, frozen=True, kw_only=True):
    """Change mode, owner or group; None leaves it."""

    mode: int | None = None
    owner: str | int | None = None
    group: str | int | None = None


class Exists(Result, frozen=True, kw_only=True):
    """Answer of `exists`."""

    success: bool = True
    path: str
    exists: bool
    timestamp: datetime


class FileInfo(Result, frozen=True, kw_only=True):
    """One file or directory. `type` is file, directory, symlink or other; size in bytes."""

    name: str
    absolute_path: str
    relative_path: str = ""
    type: str
    size: int
    modified_at: datetime
    mode: int
    permissions: str  # "rwxr-xr-x"
    owner: str = ""  # a name, or the number as text when the image has none for it
    group: str = ""
    target: str | None = None  # of a symbolic link


class FileList(Result, frozen=True, kw_only=True):
    """One page of a directory; `cursor` is None on the last."""

    files: list[FileInfo]
    path: str
    count: int
    cursor: str | None = None


class FileMeta(Result, frozen=True, kw_only=True):
    """What a read tells before the bytes."""

    path: str
    size: int
    mime_type: str
    is_binary: bool
    encoding: str  # utf-8 or base64: how a caller without a wish gets it
    etag: str
    mode: int = 0o644
    modified_at: datetime | None = None


class WriteResult(Result, frozen=True, kw_only=True):
    """A file was written and is durable."""

    success: bool = True
    path: str
    size: int
    sha256: str = ""
    timestamp: datetime | None = None


class SearchRequest(PathRequest, frozen=True, kw_only=True):
    """Find files by name (glob)."""

    pattern: str = "*"
    limit: int = 10_000


class FindRequest(PathRequest, frozen=True, kw_only=True):
    """Find text in files."""

    text: str = ""
    regex: bool = False
    glob: str | None = None
    limit: int = 10_000


class Match(Result, frozen=True, kw_only=True):
    """One match of a search in files. Line numbers start at 1, columns at 0 (in characters)."""

    path: str
    line: int
    column: int
    text: str


class MatchList(Result, frozen=True, kw_only=True):
    """Matches in order of path and line."""

    matches: list[Match]
    truncated: bool = False


class PathList(Result, frozen=True, kw_only=True):
    """Paths, sorted."""

    paths: list[str]
    truncated: bool = False


class ReplaceRequest(Request, frozen=True, kw_only=True):
    """Replace text in files."""

    paths: list[str]
    old: str
    new: str
    session: str | None = None
    user: str | None = None


class Replacements(Result, frozen=True, kw_only=True):
    """How many replacements were made in which file."""

    replaced: dict[str, int] = msgspec.field(default_factory=dict)
