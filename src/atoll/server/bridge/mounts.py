"""Buckets in the workspace: every field of a request is checked before anything is tried.

What fails then is answered with 502, whatever the reason, as the client of this API expects.
"""

import posixpath
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from atoll.engine.engine import Engine
from atoll.server.bridge import requests
from atoll.server.bridge.failures import invalid
from atoll.server.bridge.files import OK
from atoll.wire.mounts import BucketCredentials, MountBucket

_OPTIONS: dict[str, tuple[type, str]] = {
    "endpoint": (str, "a string"),
    "provider": (str, "a string"),
    "readOnly": (bool, "a boolean"),
    "prefix": (str, "a string"),
    "credentialProxy": (bool, "a boolean"),
}
_CREDENTIALS = ("accessKeyId", "secretAccessKey")


class Mount(msgspec.Struct, frozen=True):
    """A checked request. `endpoint` None: the bucket is that of a binding."""

    bucket: str
    path: str
    endpoint: str | None
    options: dict[str, Any]


async def mount(engine: Engine, request: Request) -> Response:
    """Mount a bucket."""
    wanted = checked(await requests.body(engine, request, dict[str, Any]))
    await engine.mounts.mount(requests.sandbox(engine, request), asked(wanted))
    return Response(OK, media_type="application/json")


async def unmount(engine: Engine, request: Request) -> Response:
    """End a mount."""
    path = mount_path(await requests.body(engine, request, dict[str, Any]))
    await engine.mounts.unmount(requests.sandbox(engine, request), path)
    return Response(OK, media_type="application/json")


def checked(body: dict[str, Any]) -> Mount:
    """Return what *body* asks for.

    Raises:
        ValidationFailedError: the first field that is wrong.
    """
    bucket, binding = (_name(body, field) for field in ("bucket", "binding"))
    path = mount_path(body)
    options = body.get("options")
    if not isinstance(options, dict):
        raise invalid("options must be an object")
    for field, (kind, form) in _OPTIONS.items():
        if field in options and not isinstance(options[field], kind):
            raise invalid(f"options.{field} must be {form} when provided")
    _check_rest(options)
    endpoint: str | None = options.get("endpoint")
    if binding and endpoint is not None:
        raise invalid("Provide either binding or options.endpoint, not both")
    if endpoint is None and not binding:
        raise invalid("binding must be a non-empty string for R2 binding mounts")
    if endpoint is not None and not bucket:
        raise invalid("bucket must be a non-empty string for remote mounts")
    return Mount(bucket or binding or "", path, endpoint, options)


def asked(wanted: Mount) -> MountBucket:
    """Return what the engine is asked for."""
    given, options = wanted.options.get("credentials"), wanted.options
    credentials = given and BucketCredentials(
        access_key_id=given["accessKeyId"], secret_access_key=given["secretAccessKey"]
    )
    return MountBucket(
        path=wanted.path,
        bucket=wanted.bucket if wanted.endpoint is not None else None,
        binding=wanted.bucket if wanted.endpoint is None else None,
        endpoint=wanted.endpoint,
        provider=options.get("provider"),
        credentials=credentials or None,
        read_only=options.get("readOnly", False),
        prefix=options.get("prefix"),
        s3fs_options=options.get("s3fsOptions", []),
    )


def _check_rest(options: dict[str, Any]) -> None:
    arguments = options.get("s3fsOptions", [])
    if not isinstance(arguments, list) or not all(isinstance(one, str) for one in arguments):
        raise invalid("options.s3fsOptions must be an array of strings when provided")
    if "credentials" not in options:
        return
    given = options["credentials"]
    if not isinstance(given, dict) or not all(isinstance(given.get(n), str) for n in _CREDENTIALS):
        raise invalid("options.credentials must include string accessKeyId and secretAccessKey")


def _name(body: dict[str, Any], field: str) -> str | None:
    value = body.get(field)
    if field in body and (not isinstance(value, str) or not value):
        raise invalid(f"{field} must be a non-empty string")
    return value


def mount_path(body: dict[str, Any]) -> str:
    """Return the normal form of ``mountPath``; raise as `checked`."""
    path = body.get("mountPath")
    if not isinstance(path, str) or not path:
        raise invalid("mountPath must be a non-empty string")
    if not path.startswith("/"):
        raise invalid("mountPath must be an absolute path (start with /)")
    if "\0" in path:
        raise invalid("mountPath must not have a NUL character")
    normal = "/" + posixpath.normpath(path).lstrip("/")
    if normal == "/":
        raise invalid("mountPath must not resolve to / (filesystem root)")
    return normal
