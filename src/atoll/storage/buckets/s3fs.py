"""What s3fs is told. Pure."""

from atoll.errors import InvalidMountConfigError
from atoll.storage.buckets.options import Credentials, Source, told


def secret(credentials: Credentials | None) -> str:
    """Return the text of its password file.

    Raises:
        InvalidMountConfigError: there are no credentials.
    """
    if credentials is None:
        raise InvalidMountConfigError("this bucket needs a key", context={"field": "credentials"})
    return f"{credentials.access_key_id}:{credentials.secret_access_key}\n"


def argv(source: Source, owner: int, reserve_mb: int) -> list[str]:
    """Return its command line; there is no secret in it.

    Args:
        source: the bucket.
        owner: host id of root inside: who all files belong to.
        reserve_mb: MB of the disk that its cache leaves free.
    """
    name = source.bucket + (f":/{source.prefix}" if source.prefix else "")
    ours = "auto_unmount,allow_other,passwd_file=/secret,tmpdir=/tmp"
    options = f"{ours},ensure_diskfree={reserve_mb},{told(source, owner)}"
    return ["s3fs", "-f", name, "/mnt", "-o", options]
