"""What rclone is told: for Azure and folders of the host, and for S3 where there is no s3fs. Pure.

It has its bucket's credentials from a configuration file. A file is sent when it is closed; until
then it lies in the cache, so that programs may write anywhere in it.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from atoll.errors import NotSupportedByRuntimeError
from atoll.storage.buckets import azure
from atoll.storage.buckets.options import LOCAL, Credentials, Source, refused
from atoll.wire.mounts import HIDDEN

FOLDER: Final = "/bucket"
"""Where a folder of the host is in the client's view."""

_PROVIDERS: Final[Mapping[str, str]] = {
    "r2": "Cloudflare", "minio": "Minio",
}  # fmt: skip

_OPTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "connect_timeout": ("contimeout", "s"),
    "max_dirty_data": ("", ""),
    "multipart_size": ("s3-chunk-size", "Mi"),
    "nomixupload": ("", ""),
    "parallel_count": ("s3-upload-concurrency", ""),
    "readwrite_timeout": ("timeout", "s"),
    "retries": ("low-level-retries", ""),
    "sigv4": ("", ""),
    "stat_cache_expire": ("dir-cache-time", "s"),
    "storage_class": ("s3-storage-class", ""),
    "default_acl": ("s3-acl", ""),
    "umask": ("umask", ""),
    "use_path_request_style": ("", ""),
    "endpoint": ("", ""),
}
"""Option of s3fs → the same of rclone, and the unit of its value; an empty one is told otherwise,
or means nothing to it."""

_DEFAULTS: Final[Mapping[str, str]] = {
    "contimeout": "3s",
    "timeout": "10s",
    "retries": "1",
    "low-level-retries": "2",
    "dir-cache-time": "10s",
    "attr-timeout": "1s",
    "poll-interval": "0",
    "umask": "022",
    "dir-perms": "0777",
    "file-perms": "0666",
    "vfs-cache-mode": "writes",
    "vfs-write-back": "0",
    "vfs-cache-max-age": "1s",
    "vfs-cache-poll-interval": "10s",
    "transfers": "2",
    "buffer-size": "1Mi",
    "s3-upload-concurrency": "2",
    "azureblob-upload-concurrency": "2",
    "stats": "0",
}
"""A request to an endpoint that is silent fails within half a minute. What was sent leaves the
cache within seconds. Concurrency and buffers keep the client at some ten MB."""

_AZURE: Final[Mapping[str, str]] = {"timeout": "5s", "low-level-retries": "1"}
"""Its library tries each request four times, with pauses that grow; a minute in all."""

_FRESH: Final[Mapping[str, str]] = {"dir-cache-time": "0", "attr-timeout": "0"}
"""Nobody tells of changes in a folder; looking again costs microseconds."""


def config(source: Source, credentials: Credentials | None, now: datetime) -> str:
    """Return the text of its configuration file.

    Raises:
        InvalidMountConfigError: the file cannot hold this key.
    """
    fields = _KINDS.get(source.provider, _s3)(source, credentials, now)
    for value in fields.values():
        if "`" in value or "%(" in value:  # its file format takes these for something else
            raise refused("credentials", "rclone takes no key with a ` or %( in it")
    return "[bucket]\n" + "".join(f"{name} = {value}\n" for name, value in fields.items())


def _local(_source: Source, _credentials: Credentials | None, _now: datetime) -> dict[str, str]:
    return {"type": "local", "skip_links": "true"}


def _azure(source: Source, credentials: Credentials | None, now: datetime) -> dict[str, str]:
    signed = azure.url(source, _given(credentials), now)
    return {"type": "azureblob", "sas_url": signed}


def _s3(source: Source, credentials: Credentials | None, _now: datetime) -> dict[str, str]:
    key = _given(credentials)
    return {
        "type": "s3",
        "provider": _server(source),
        "access_key_id": key.access_key_id,
        "secret_access_key": key.secret_access_key,
        "endpoint": str(source.endpoint),
        "region": source.region,
        "force_path_style": "true" if source.by_path else "false",
        "no_check_bucket": "true",
    }


_KINDS: Final[Mapping[str, Callable[[Source, Credentials | None, datetime], dict[str, str]]]] = {
    LOCAL: _local,
    "azure": _azure,
}


def _server(source: Source) -> str:
    amazon = "AWS" if source.endpoint.host.endswith(".amazonaws.com") else "Other"
    return _PROVIDERS.get(source.provider, amazon)


def _given(credentials: Credentials | None) -> Credentials:
    if credentials is None:
        raise refused("credentials", "this bucket needs a key")
    return credentials


def argv(source: Source, owner: int) -> list[str]:
    """Return its command line; there is no secret in it.

    Args:
        source: the bucket.
        owner: host id of root inside: who all files belong to.

    Raises:
        NotSupportedByRuntimeError: an option has no like here.
    """
    local = source.provider == LOCAL
    own = {LOCAL: _FRESH, "azure": _AZURE}.get(source.provider, {})
    values = {**_DEFAULTS, **own, **_translated(source.options)}
    values |= {"uid": str(owner), "gid": str(owner)}
    where = f"{FOLDER if local else source.bucket}{source.prefix and '/' + source.prefix}"
    flags = [f"--{name}={value}" for name, value in values.items()]
    flags += ["--read-only"] if source.read_only else []
    # A folder that is not there cannot be mounted, and the engine must not make one for a caller.
    making = ["sh", "-c", 'mkdir -p "$0" && exec "$@"', where] if local else []
    return [
        *making, "rclone", "mount", f"bucket:{where}", "/mnt", "--config=/secret", "--cache-dir=/tmp",
        "--allow-other", "--allow-non-empty", "--default-permissions", f"--exclude=/{HIDDEN}**", *flags,
    ]  # fmt: skip


def _translated(options: Mapping[str, str | None]) -> dict[str, str]:
    found = {}
    for name, value in options.items():
        if name not in _OPTIONS:
            raise NotSupportedByRuntimeError(
                f"{name!r} is an option of s3fs, and this bucket is served by rclone",
                context={"option": name},
                suggestion=f"leave it out; these work with both: {', '.join(sorted(_OPTIONS))}",
            )
        flag, unit = _OPTIONS[name]
        if flag:
            found[flag] = f"{value}{unit}"
    return found
