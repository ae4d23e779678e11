"""What a caller means by a bucket: which one, where, and with which key. Pure."""

from collections.abc import Container

from atoll.errors import MissingCredentialsError
from atoll.settings import StorageSettings
from atoll.storage.buckets import azure, options
from atoll.storage.buckets.options import Credentials, Source
from atoll.wire.mounts import MountBucket


def resolved(
    wanted: MountBucket, settings: StorageSettings, local: Container[str]
) -> tuple[Source, Credentials | None]:
    """Return what is to be mounted, and with which key; a local bucket has none.

    Args:
        wanted: what the caller said.
        settings: the engine's bindings.
        local: bindings that are folders of the host.

    Raises:
        InvalidMountConfigError: a field is wrong.
        MissingCredentialsError: there are none.
    """
    named = wanted.binding or (wanted.bucket if wanted.local_bucket else None)
    bound = settings.buckets.get(named or "")
    if named is not None and (wanted.local_bucket or (bound is None and named in local)):
        return _local(wanted, named), None
    given = wanted.credentials
    keys = (given.access_key_id, given.secret_access_key) if given else None
    bucket, endpoint, provider = wanted.bucket, wanted.endpoint, wanted.provider
    prefix = wanted.prefix
    if (bucket is None) == (wanted.binding is None):
        raise options.refused("bucket", "give a bucket or a binding, one of both")
    if wanted.binding is not None:
        if endpoint is not None or bound is None:
            known = ", ".join(sorted(settings.buckets)) or "none"
            raise options.refused(
                "binding", f"there is no binding {wanted.binding[:80]!r}; this engine has {known}"
            )
        bucket, endpoint, provider = bound.bucket, bound.endpoint, provider or bound.provider
        prefix = options.below(bound.prefix, wanted.prefix)
        keys = keys or (bound.access_key_id, bound.secret_access_key)
    provider = provider or options.provider_of(endpoint)
    if provider == "azure" and endpoint is None and keys:
        endpoint = str(azure.endpoint(None, keys[0]))
    source = options.source(
        bucket=bucket or "",
        endpoint=endpoint,
        provider=provider,
        prefix=prefix,
        read_only=wanted.read_only,
        given=wanted.s3fs_options,
    )
    return source, _checked(source, keys)


def _local(wanted: MountBucket, binding: str) -> Source:
    if wanted.bucket and wanted.binding:
        raise options.refused("bucket", "give a bucket or a binding, one of both")
    for field in ("endpoint", "provider", "credentials", "s3fs_options"):
        if getattr(wanted, field):
            raise options.refused(field, f"a local bucket has no {field}")
    return options.local(binding, wanted.prefix, read_only=wanted.read_only)


def _checked(source: Source, keys: tuple[str, str] | None) -> Credentials:
    if not keys:
        raise MissingCredentialsError(
            f"bucket {source.bucket!r} needs a key",
            suggestion="give credentials, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    credentials = Credentials(access_key_id=keys[0], secret_access_key=keys[1])
    options.check_credentials(credentials)
    if source.provider == "azure":
        azure.endpoint(str(source.endpoint), credentials.access_key_id)
        azure.check(source, credentials)
    return credentials
