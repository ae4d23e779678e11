"""Which store a binding means: a folder of the project in development, a bucket in production.

Keys and endpoint of production are secrets or variables of the Worker, or those of its environment.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from atoll.errors import InvalidConfigError
from atoll.workers.buckets import places
from atoll.workers.buckets.bucket import Bucket
from atoll.workers.buckets.storing import Storing
from atoll.workers.wrangler import Bucket as Entry

SILENCE = 60.0
"""Seconds an endpoint may be silent, within which it takes the parts of an upload (5 MiB each, four
at once: 350 kB/s); a request that failed is made again only while less than that has passed."""

LONGEST = 900.0
"""Seconds of one request, however busy."""


def opened(
    entries: Sequence[Entry], root: Path, values: Mapping[str, str], *, local: bool
) -> dict[str, Bucket]:
    """Return binding → bucket.

    Args:
        entries: `r2_buckets` of the configuration.
        root: the project's folder.
        values: secrets, variables and environment of the Worker.
        local: in development.

    Raises:
        InvalidConfigError: production has no key or endpoint.
    """
    return {
        entry.binding: Bucket(_folder(root, entry) if local else _remote(entry, values))
        for entry in entries
    }


def _folder(root: Path, entry: Entry) -> Storing:
    from obstore.store import LocalStore

    place = places.of(root, entry)
    objects, notes = (LocalStore(place / name, mkdir=True) for name in ("objects", "metadata"))
    return Storing(entry.bucket_name, objects, notes)


def _remote(entry: Entry, values: Mapping[str, str]) -> Storing:
    from obstore.store import S3Store

    endpoint = _endpoint(values)
    key, secret = _key(entry, values)
    return Storing(
        entry.bucket_name,
        S3Store(
            entry.bucket_name,
            endpoint=endpoint,
            access_key_id=key,
            secret_access_key=secret,
            region=values.get("AWS_REGION", "auto"),
            virtual_hosted_style_request=False,
            disable_bulk_delete=True,  # Google's servers have no deletion of many
            client_options={
                "allow_http": endpoint.startswith("http://"),
                "connect_timeout": timedelta(seconds=5),
                "read_timeout": timedelta(seconds=SILENCE),
                "timeout": timedelta(seconds=LONGEST),
            },
            retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=SILENCE)},
        ),
    )


def _endpoint(values: Mapping[str, str]) -> str:
    if given := values.get("R2_ENDPOINT") or values.get("AWS_ENDPOINT_URL"):
        return given
    if account := values.get("CLOUDFLARE_ACCOUNT_ID"):
        return f"https://{account}.r2.cloudflarestorage.com"
    raise InvalidConfigError(
        "buckets have no endpoint in production",
        suggestion="set CLOUDFLARE_ACCOUNT_ID, or R2_ENDPOINT for another S3 server",
    )


def _key(entry: Entry, values: Mapping[str, str]) -> tuple[str, str]:
    for prefix in ("R2_", "AWS_"):
        key, secret = (values.get(prefix + name) for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"))
        if key and secret:
            return key, secret
    raise InvalidConfigError(
        f"bucket {entry.bucket_name!r} has no key in production",
        suggestion="set R2_ACCESS_KEY_ID and R2_SECRET_ACCESS_KEY as secrets",
    )
