"""Where a bucket is and with which key, as far as the environment of the caller says. Pure."""

from collections.abc import Mapping

from atoll.errors import InvalidMountConfigError
from atoll.sdk import _arguments
from atoll.wire.mounts import BucketCredentials


def endpoint(given: str | None, provider: str | None, environment: Mapping[str, str]) -> str | None:
    """Return the endpoint: as given, or that of the R2 account the environment names."""
    if given is not None and not isinstance(given, str):
        raise _arguments.wrong("endpoint", "text", given)
    account = environment.get("CLOUDFLARE_ACCOUNT_ID")
    if given is None and provider == "r2" and account:
        return f"https://{account}.r2.cloudflarestorage.com"
    return given


def credentials(
    given: BucketCredentials | Mapping[str, str] | None,
    endpoint: str | None,
    provider: str | None,
    environment: Mapping[str, str],
) -> BucketCredentials | None:
    """Return the key: as given, or the environment's for this provider.

    Raises:
        InvalidMountConfigError: it is no mapping, or lacks one of its two values.
    """
    if isinstance(given, BucketCredentials):
        return given
    if given is not None:
        return _read(given)
    if provider == "azure" or ".blob.core.windows.net" in (endpoint or ""):
        return _found(environment, "AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY")
    r2 = provider == "r2" or "r2.cloudflarestorage.com" in (endpoint or "")
    for prefix in ("R2_", "AWS_") if r2 else ("AWS_",):
        if found := _found(environment, prefix + "ACCESS_KEY_ID", prefix + "SECRET_ACCESS_KEY"):
            return found
    return None


def _found(environment: Mapping[str, str], id: str, secret: str) -> BucketCredentials | None:
    key, value = environment.get(id), environment.get(secret)
    return BucketCredentials(access_key_id=key, secret_access_key=value) if key and value else None


def _read(given: Mapping[str, str]) -> BucketCredentials:
    told: Mapping[str, object] = given if isinstance(given, Mapping) else {}
    key = told.get("access_key_id", told.get("accessKeyId"))
    secret = told.get("secret_access_key", told.get("secretAccessKey"))
    if not isinstance(key, str) or not isinstance(secret, str):
        raise InvalidMountConfigError(
            "credentials have access_key_id and secret_access_key",
            context={"field": "credentials"},
        )
    return BucketCredentials(access_key_id=key, secret_access_key=secret)
