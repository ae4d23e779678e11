"""Files on the wire. Bodies of files are raw bytes, never part of these structs.

Paths are text everywhere. A byte of a name that is not valid UTF-8 travels as one character of
U+EF80..U+EFFF (byte 0x80 is U+EF80), as do the bytes of a name that holds such a character
itself. So every name has exactly one form, which survives JSON, URLs and terminals and may be
handed back in any request. Two names never look the same, and no request is ambiguous.
"""

from collections.abc import Iterator
from datetime import datetime

import msgspec

from atoll.wire.base import Request, Result, Whole


class PathRequest(Request, frozen=True, kw_only=True):
    """A path inside the sandbox; relative ones start at the session's cwd."""

    path: str
    session: str | None = None
    user: str | None = None


class MkdirRequest(PathRequest, frozen=True, kw_only=True):
    """Make a directory, with its parents when `recursive`."""

    recursive: bool = False
    mode: Whole | None = None


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
    limit: Whole = 1000


class PermissionsRequest(PathRequest, frozen=True, kw_only=True):
    """Change mode, owner or group; None leaves it."""

    mode: Whole | None = None
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
    """One page of a directory, an iterable of its entries; `cursor` is None on the last."""

    success: bool = True
    files: list[FileInfo]
    path: str
    count: int
    cursor: str | None = None
    timestamp: datetime | None = None

    def __iter__(self) -> Iterator[FileInfo]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)


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
    """Find files and directories by glob; one without a slash is compared with names only."""

    pattern: str = "*"
    limit: Whole = 10_000


class FindRequest(PathRequest, frozen=True, kw_only=True):
    """Find text, or a regular expression of Python, in the text files below a path.

    Files with a NUL byte and `.git` directories are left out.
    """

    text: str = ""
    regex: bool = False
    glob: str | None = None
    limit: Whole = 10_000


class Match(Result, frozen=True, kw_only=True):
    """The first match of a line. Line numbers start at 1, columns at 0 (in characters)."""

    path: str
    line: int
    column: int
    text: str


class MatchList(Result, frozen=True, kw_only=True):
    """Matches in order of path and line."""

    matches: list[Match]
    truncated: bool = False

    def __iter__(self) -> Iterator[Match]:
        return iter(self.matches)

    def __len__(self) -> int:
        return len(self.matches)


class PathList(Result, frozen=True, kw_only=True):
    """Paths, sorted."""

    paths: list[str]
    truncated: bool = False

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)


class ReplaceRequest(Request, frozen=True, kw_only=True):
    """Replace text in files, each of them atomically. Files without `old` are left alone."""

    paths: list[str]
    old: str
    new: str
    session: str | None = None
    user: str | None = None


class Replacements(Result, frozen=True, kw_only=True):
    """How many replacements were made in which file."""

    replaced: dict[str, int] = msgspec.field(default_factory=dict)


class DownloadRequest(PathRequest, frozen=True, kw_only=True):
    """Pack a file or directory. `excludes` are globs, comma separated.

    With `gitignore` what the ignore files of the tree name is left out, and `.git` itself. Without
    `hard_links` every name of a file is packed with its content.
    """

    excludes: str | None = None
    gitignore: bool = False
    hard_links: bool = True


class Archive(Result, frozen=True, kw_only=True):
    """What a download tells before the bytes: a tar archive with names relative to `path`."""

    path: str
    format: str = "tar"


class UploadRequest(PathRequest, frozen=True, kw_only=True):
    """Unpack a tar archive into the directory `path`, which is made if it is missing.

    Symbolic links must stay inside `path` unless `outside_links`; they are never followed.
    """

    outside_links: bool = False


class UploadResult(Result, frozen=True, kw_only=True):
    """An archive was unpacked. `files` counts all members, `size` their content in bytes."""

    success: bool = True
    path: str
    files: int
    size: int


class WatchRequest(PathRequest, frozen=True, kw_only=True):
    """Which changes to report. `include` and `exclude` are globs; give one of them only.

    Without `include`, `exclude` is ``.git``, ``node_modules`` and ``.DS_Store`` unless given.
    """

    recursive: bool = True
    include: list[str] | None = None
    exclude: list[str] | None = None


class WatchEvent(Result, frozen=True, kw_only=True):
    """One event of a watch.

    `type` is watching, create, modify, delete, move_from, move_to, attrib, overflow or stopped.
    After an overflow events were lost: look at the directory itself. `reason` says why the watch
    stopped (cancelled, deleted, moved, unmounted, sandbox_stopped, sandbox_frozen,
    sandbox_destroyed) or overflowed (queue, limit).
    """

    type: str
    path: str
    timestamp: datetime
    is_directory: bool = False
    watch_id: str | None = None
    reason: str | None = None


class ChangesRequest(WatchRequest, frozen=True, kw_only=True):
    """Whether anything changed since the version an earlier answer gave."""

    since: str | None = None


class Changes(Result, frozen=True, kw_only=True):
    """Answer of `check_changes`: `status` is unchanged, changed or resync.

    The first call, without `since`, is the baseline and answers unchanged. A version is computed
    from the tree itself, so it outlives sleep and restarts; resync is the answer to a version of
    another form or of other options (reason expired), and to one of a tree in memory of an
    earlier start (reason restarted).
    """

    status: str
    version: str
    reason: str | None = None
