"""The media type of a file: by its content where that is certain, else by its extension.

Containers (zip, xml, ole) say by their extension what is in them; a zip without one is looked
into. The table is ours because the standard one reads files of the image.
"""

from typing import Final

_TYPES: Final = {
    "application/epub+zip": "epub",
    "application/gzip": "gz tgz",
    "application/java-archive": "jar war",
    "application/json": "json map ipynb webmanifest",
    "application/jsonl": "jsonl ndjson",
    "application/msword": "doc",
    "application/pdf": "pdf",
    "application/rtf": "rtf",
    "application/sql": "sql",
    "application/toml": "toml",
    "application/vnd.android.package-archive": "apk",
    "application/vnd.apache.parquet": "parquet",
    "application/vnd.ms-excel": "xls",
    "application/vnd.ms-powerpoint": "ppt",
    "application/vnd.oasis.opendocument.presentation": "odp",
    "application/vnd.oasis.opendocument.spreadsheet": "ods",
    "application/vnd.oasis.opendocument.text": "odt",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "pptx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.sqlite3": "sqlite sqlite3 db",
    "application/wasm": "wasm",
    "application/x-7z-compressed": "7z",
    "application/x-bzip2": "bz2",
    "application/x-hdf5": "h5 hdf5",
    "application/x-sh": "sh bash",
    "application/x-tar": "tar",
    "application/x-xz": "xz",
    "application/xml": "xml xsl xsd",
    "application/yaml": "yaml yml",
    "application/zip": "zip whl",
    "application/zstd": "zst",
    "audio/aac": "aac",
    "audio/flac": "flac",
    "audio/midi": "mid midi",
    "audio/mp4": "m4a",
    "audio/mpeg": "mp3",
    "audio/ogg": "ogg oga opus",
    "audio/wav": "wav",
    "font/otf": "otf",
    "font/ttf": "ttf",
    "font/woff": "woff",
    "font/woff2": "woff2",
    "image/avif": "avif",
    "image/bmp": "bmp",
    "image/gif": "gif",
    "image/heic": "heic",
    "image/jpeg": "jpg jpeg",
    "image/png": "png",
    "image/svg+xml": "svg",
    "image/tiff": "tif tiff",
    "image/vnd.microsoft.icon": "ico",
    "image/webp": "webp",
    "text/calendar": "ics",
    "text/css": "css",
    "text/csv": "csv",
    "text/html": "html htm",
    "text/javascript": "js mjs cjs",
    "text/markdown": "md markdown",
    "text/plain": "txt log text conf cfg ini env",
    "text/tab-separated-values": "tsv",
    "text/typescript": "ts mts cts tsx",
    "text/jsx": "jsx",
    "text/vcard": "vcf",
    "text/x-c": "c h",
    "text/x-c++": "cc cpp cxx hpp hh",
    "text/x-csharp": "cs",
    "text/x-go": "go",
    "text/x-java": "java",
    "text/x-kotlin": "kt kts",
    "text/x-lua": "lua",
    "text/x-perl": "pl pm",
    "text/x-php": "php",
    "text/x-python": "py pyi pyw",
    "text/x-rst": "rst",
    "text/x-ruby": "rb",
    "text/x-rust": "rs",
    "text/x-scss": "scss sass",
    "text/x-swift": "swift",
    "text/x-r": "r",
    "text/x-tex": "tex",
    "text/x-vue": "vue",
    "text/x-diff": "diff patch",
    "video/mp4": "mp4 m4v",
    "video/mpeg": "mpg mpeg",
    "video/quicktime": "mov",
    "video/webm": "webm",
    "video/x-matroska": "mkv",
    "video/x-msvideo": "avi",
}
"""Media type → extensions, of files that people and programs leave in a workspace."""

_MAGIC: Final = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (4, b"ftypavif", "image/avif"),
    (4, b"ftypheic", "image/heic"),
    (0, b"II*\0", "image/tiff"),
    (0, b"MM\0*", "image/tiff"),
    (0, b"\0\0\1\0", "image/vnd.microsoft.icon"),
    (0, b"%PDF-", "application/pdf"),
    (0, b"SQLite format 3\0", "application/vnd.sqlite3"),
    (0, b"\0asm", "application/wasm"),
    (0, b"\x1f\x8b", "application/gzip"),
    (0, b"BZh", "application/x-bzip2"),
    (0, b"\xfd7zXZ\0", "application/x-xz"),
    (0, b"\x28\xb5\x2f\xfd", "application/zstd"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (257, b"ustar", "application/x-tar"),
    (0, b"PAR1", "application/vnd.apache.parquet"),
    (0, b"\x89HDF\r\n\x1a\n", "application/x-hdf5"),
    (0, b"\x7fELF", "application/x-executable"),
    (0, b"fLaC", "audio/flac"),
    (0, b"OggS", "audio/ogg"),
    (0, b"ID3", "audio/mpeg"),
    (8, b"WAVE", "audio/wav"),
    (8, b"AVI ", "video/x-msvideo"),
    (4, b"ftypqt", "video/quicktime"),
    (4, b"ftypM4A", "audio/mp4"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1aE\xdf\xa3", "video/x-matroska"),
    (0, b"wOFF", "font/woff"),
    (0, b"wOF2", "font/woff2"),
    (0, b"OTTO", "font/otf"),
    (0, b"\0\1\0\0\0", "font/ttf"),
)
_ZIP: Final = b"PK\3\4"
_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_OFFICE: Final = "application/vnd.openxmlformats-officedocument."
_IN_ZIP: Final = (
    (b"word/", _OFFICE + "wordprocessingml.document"),
    (b"xl/", _OFFICE + "spreadsheetml.sheet"),
    (b"ppt/", _OFFICE + "presentationml.presentation"),
    (b"META-INF/MANIFEST.MF", "application/java-archive"),
)
_MEMBER_TYPE: Final = b"mimetype"  # first member of OpenDocument and EPUB, stored as it is
_SAME_CONTAINER: Final = {
    "video/x-matroska": "video/webm",
    "audio/ogg": "audio/ogg",
    "video/mp4": "audio/mp4",
}


def guess(path: bytes, head: bytes, *, text: bool) -> str:
    """Return the media type of the file *path* that begins with *head*.

    Args:
        path: only its extension counts.
        head: the first bytes; 8 KiB are enough.
        text: whether the content is valid UTF-8; decides between text/plain and octet-stream.
    """
    named = _by_extension(path)
    if head.startswith(_ZIP):
        return named if named and _may_be_zip(named) else _in_zip(head)
    if head.startswith(_OLE):
        return named or "application/x-ole-storage"
    found = _by_content(head)
    if found:
        return named if named and _SAME_CONTAINER.get(found) == named else found
    if named and (text or not named.startswith("text/")):
        return named
    return "text/plain" if text else "application/octet-stream"


def _by_extension(path: bytes) -> str | None:
    name = path.rpartition(b"/")[2].lower()
    stem, dot, extension = name.rpartition(b".")
    if not dot or not stem:
        return None
    wanted = extension.decode("ascii", "replace")
    return next((kind for kind, known in _TYPES.items() if wanted in known.split()), None)


def _by_content(head: bytes) -> str | None:
    for offset, magic, kind in _MAGIC:
        if head.startswith(magic, offset):
            return kind
    return None


def _may_be_zip(kind: str) -> bool:
    return "zip" in kind or kind.startswith("application/vnd.") or kind.endswith("-archive")


def _in_zip(head: bytes) -> str:
    if head[30:38] == _MEMBER_TYPE:
        end = head.find(b"PK", 38)
        kind = head[38 : end if end > 0 else 120].decode("ascii", "replace")
        if kind in _TYPES:
            return kind
    for member, kind in _IN_ZIP:
        if member in head[:8192]:
            return kind
    return "application/zip"
