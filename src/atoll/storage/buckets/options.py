"""What a caller may ask of a bucket's client, and what the client is told. Pure.

No value of a caller is an option of the client unless it is in the list here: the client reads
files, writes logs and runs programs when its options say so.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from atoll.errors import InvalidMountConfigError
from atoll.wire.mounts import HIDDEN

PROVIDERS: Final[Mapping[str, tuple[str | None, tuple[str, ...]]]] = {
    "s3": ("https://s3.amazonaws.com", ()),
    "r2": (None, ("nomixupload",)),
    "gcs": ("https://storage.googleapis.com", ("nomultipart",)),
    "minio": (None, ()),
    "azure": (None, ()),
}
"""Provider → its endpoint, where there is one for all, and options its servers need. R2 refuses uploads
whose parts are copied and sent by turns. GCS copies no parts, and s3fs 1.90 renames any file over 20 MB
by parts unless it uses none at all. Azure has an endpoint for each account."""

LOCAL: Final = "local"
"""The provider of folders of the host; no caller's."""

FLAGS: Final = frozenset(
    {
        "compat_dir", "complement_stat", "disable_noobj_cache", "enable_content_md5",
        "enable_noobj_cache", "nocopyapi", "nomixupload", "nomultipart", "norenameapi", "noxmlns",
        "notsup_compat_dir", "sigv2", "sigv4", "streamupload", "use_path_request_style",
        "use_wtf8",
    }
)  # fmt: skip

NUMBERS: Final[Mapping[str, tuple[int, int]]] = {
    "connect_timeout": (1, 60),
    "list_object_max_keys": (2, 1_000),
    "max_dirty_data": (50, 10_240),
    "max_stat_cache_size": (0, 1_000_000),
    "multipart_copy_size": (5, 5_120),
    "multipart_size": (5, 512),
    "multireq_max": (1, 100),
    "parallel_count": (1, 20),
    "readwrite_timeout": (1, 120),
    "retries": (1, 10),
    "singlepart_copy_limit": (5, 5_120),
    "stat_cache_expire": (0, 3_600),
}
"""Options with a number, and its bounds: those of time keep a dead endpoint from hanging anybody."""

WORDS: Final[Mapping[str, re.Pattern[str]]] = {
    "default_acl": re.compile(r"[a-z-]{1,32}"),
    "endpoint": re.compile(r"[a-z0-9-]{1,40}"),
    "storage_class": re.compile(r"[A-Za-z_]{1,32}"),
    "umask": re.compile(r"[0-7]{3,4}"),
    "use_sse": re.compile(r"1"),
}

DEFAULTS: Final[Mapping[str, str]] = {
    "connect_timeout": "3",
    "readwrite_timeout": "10",
    "retries": "1",
    "stat_cache_expire": "10",
    "umask": "0022",
}
"""A request to an endpoint that is silent fails within half a minute (a look for a name takes up to
four). What another sandbox wrote is seen 10 s later at most."""

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_KEY = re.compile(r"[!-9;-~]{1,256}")  # a colon would end it
_SECRET = re.compile(r"[!-~]{1,1024}")
_SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/boot")
MAX_PATH = 1_024
MAX_PREFIX = 512


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """A key of a bucket's owner. Its text shows no secret."""

    access_key_id: str
    secret_access_key: str

    def __repr__(self) -> str:
        return f"Credentials({self.access_key_id[:4]}…)"


class Origin(msgspec.Struct, frozen=True):
    """Where an endpoint listens."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        usual = {"https": 443, "http": 80, "file": 0}[self.scheme] == self.port
        return f"{self.scheme}://{self.host}" + ("" if usual else f":{self.port}")


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket, or a part of it, as it is to be mounted; everything is checked."""

    bucket: str
    endpoint: Origin
    provider: str
    prefix: str = ""  # without slashes at its ends
    read_only: bool = False
    options: dict[str, str | None] = {}

    @property
    def region(self) -> str:
        """What requests are signed for."""
        if given := self.options.get("endpoint"):
            return given
        if self.provider == "r2":
            return "auto"
        match = re.fullmatch(r"s3[.-]([a-z0-9-]+)\.amazonaws\.com", self.endpoint.host)
        return match[1] if match else "us-east-1"

    @property
    def by_path(self) -> bool:
        """Whether the bucket is named in the path: any server but Amazon's may know only that."""
        amazon = self.endpoint.host.endswith(".amazonaws.com") and "." not in self.bucket
        return not amazon or "use_path_request_style" in self.options


def origin(url: str) -> Origin:
    """Read an endpoint: scheme, host and perhaps a port, nothing else.

    Raises:
        InvalidMountConfigError: it is something else.
    """
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname or ""
    except ValueError as error:
        raise refused("endpoint", f"this is no URL: {error}") from error
    if parts.scheme not in {"http", "https"} or not _HOST.fullmatch(host):
        raise refused("endpoint", "an endpoint is an http or https URL with a host name")
    if parts.username is not None or parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise refused("endpoint", "an endpoint has no user, path or query")
    return Origin(parts.scheme, host.lower(), port or {"https": 443, "http": 80}[parts.scheme])


def source(
    *,
    bucket: str,
    endpoint: str | None,
    provider: str | None,
    prefix: str | None,
    read_only: bool,
    given: Sequence[str],
) -> Source:
    """Check what a caller asks for.

    Raises:
        InvalidMountConfigError: names the field.
    """
    if not _BUCKET.fullmatch(bucket):
        raise refused("bucket", "a bucket's name has 3 to 63 letters, digits, dots and hyphens")
    if provider is not None and provider not in PROVIDERS:
        raise refused("provider", f"use one of {', '.join(PROVIDERS)}")
    where = endpoint or (PROVIDERS[provider][0] if provider else None)
    if where is None:
        raise refused("endpoint", "say where the bucket is")
    named = origin(where)
    kind = provider or _provider(named.host)
    return Source(
        bucket=bucket,
        endpoint=named,
        provider=kind,
        prefix=_prefix(prefix),
        read_only=read_only,
        options=dict.fromkeys(PROVIDERS[kind][1]) | checked(given),
    )


def local(binding: str, prefix: str | None, *, read_only: bool) -> Source:
    """Return the folder of the host that the operator calls *binding*; raise as `source`."""
    return Source(
        bucket=binding,
        endpoint=Origin("file", "", 0),
        provider=LOCAL,
        prefix=_prefix(prefix),
        read_only=read_only,
    )


def provider_of(endpoint: str | None) -> str | None:
    """Return the provider whose endpoints look so; None where none is given; raise as `source`."""
    return _provider(origin(endpoint).host) if endpoint else None


def _provider(host: str) -> str:
    if host.endswith(".r2.cloudflarestorage.com"):
        return "r2"
    if host.endswith(".blob.core.windows.net"):
        return "azure"
    return "gcs" if host == "storage.googleapis.com" else "s3"


def _prefix(prefix: str | None) -> str:
    inner = (prefix or "").strip("/")
    parts = inner.split("/") if inner else []
    hidden = parts[:1] == [HIDDEN.rstrip("/")]
    if len(inner) > MAX_PREFIX or not inner.isprintable() or {"", ".", ".."} & set(parts) or hidden:
        raise refused("prefix", f"a prefix is a plain path of at most {MAX_PREFIX} characters")
    return inner


def below(outer: str, inner: str | None) -> str:
    """Return the prefix *inner* within *outer*: a whole folder, never the beginning of a name.

    Raises:
        InvalidMountConfigError: one of them is no plain path.
    """
    return "/".join(filter(None, (_prefix(outer), _prefix(inner))))


def checked(given: Sequence[str]) -> dict[str, str | None]:
    """Return options by name; raise as `source`."""
    found: dict[str, str | None] = {}
    for option in given:
        name, equals, value = option.partition("=")
        if not _allowed(name, value if equals else None):
            raise refused(
                "s3fsOptions", f"{option[:80]!r} is not an option that callers may set",
                f"these are: {', '.join(sorted({*FLAGS, *NUMBERS, *WORDS}))}",
            )  # fmt: skip
        found[name] = value if equals else None
    return found


def _allowed(name: str, value: str | None) -> bool:
    if value is None:
        return name in FLAGS
    if name in NUMBERS:
        low, high = NUMBERS[name]
        return (
            value.isascii() and value.isdecimal() and len(value) < 9 and low <= int(value) <= high
        )
    return name in WORDS and WORDS[name].fullmatch(value) is not None


def told(source: Source, owner: int) -> str:
    """Return the client's option text, without what only the host decides.

    Args:
        owner: host id of root inside: who all files belong to.
    """
    values: dict[str, str | None] = {
        **DEFAULTS,
        "endpoint": source.region,
        **source.options,
        "url": str(source.endpoint),
        "uid": str(owner),
        "gid": str(owner),
    }
    if source.by_path:
        values["use_path_request_style"] = None
    if source.read_only:
        values["ro"] = None
    return ",".join(n if value is None else f"{n}={value}" for n, value in values.items())


def check_credentials(credentials: Credentials) -> None:
    """Refuse what no file of the client could hold; raise as `source`."""
    if not _KEY.fullmatch(credentials.access_key_id):
        raise refused("credentials", "this is no access key id")
    if not _SECRET.fullmatch(credentials.secret_access_key):
        raise refused("credentials", "this is no secret access key")


def mount_path(path: str) -> str:
    """Return the normal form of a path that may be a mount; raise as `source`."""
    if not path.startswith("/") or not path.isprintable() or len(path) > MAX_PATH:
        raise refused("path", "a mount's path is absolute and printable")
    if ".." in path.split("/"):
        raise refused("path", "a mount's path has no ..")
    normal = "/" + posixpath.normpath(path).lstrip("/")
    top = "/" + normal.split("/")[1]
    if normal == "/" or top in _SYSTEM:
        raise refused("path", f"{normal} belongs to the system of the sandbox")
    return normal


def refused(field: str, why: str, suggestion: str | None = None) -> InvalidMountConfigError:
    """Return the error that names what is wrong."""
    return InvalidMountConfigError(why, context={"field": field}, suggestion=suggestion)
