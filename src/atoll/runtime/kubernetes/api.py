"""What of a cluster's API is used: objects as plain JSON, failures as `ApiError`.

Credentials, certificates and their renewal are the client library's. Its generated models are not
used: a manifest that was written for one version of the API is sent as it is to any other.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import aiohttp
from kubernetes_asyncio import config
from kubernetes_asyncio.client import ApiClient, Configuration

Object = dict[str, Any]

TIMEOUT = 30.0
"""Seconds that one answer may take; a watch is open for as long as something happens."""

SILENCE = 330.0
"""Seconds without a word after which a watch counts as cut; servers end one sooner by themselves."""

GOODBYE = 0.25
"""Seconds the client library takes to end TLS connections after it was closed."""

MAX_LINE = 8 << 20
"""Bytes of one event: an object of etcd has 1.5 MiB at most."""


class ApiError(Exception):
    """The cluster's API refused, or was not there: then `status` is 0."""

    def __init__(self, status: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.status, self.reason = status, reason

    @property
    def missing(self) -> bool:
        """Whether there is no such object."""
        return self.status == 404

    @property
    def conflict(self) -> bool:
        """Whether somebody else was first."""
        return self.status == 409


class Api:
    """One cluster. Make it with `opened`."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    @classmethod
    async def connect(cls, kubeconfig: Path | None) -> Self:
        """Return the cluster that *kubeconfig* names, or that this process runs in.

        Raises:
            ApiError: neither can be used.
        """
        settings = Configuration()
        try:
            if kubeconfig:
                await config.load_kube_config(str(kubeconfig), client_configuration=settings)
            else:
                config.load_incluster_config(settings)  # type: ignore[no-untyped-call]
        except (config.ConfigException, OSError) as error:
            raise ApiError(0, f"no cluster to work with: {error}") from error
        return cls(ApiClient(settings))

    async def close(self) -> None:
        """End all connections."""
        await self._client.close()
        await asyncio.sleep(GOODBYE)

    async def get(self, path: str) -> Object | None:
        """Return an object, or None."""
        try:
            return await self.call("GET", path)
        except ApiError as error:
            if error.missing:
                return None
            raise

    async def create(self, collection: str, body: Object) -> Object:
        """Create an object; raise `ApiError` with `conflict` where there is one of its name."""
        return await self.call("POST", collection, body=body)

    async def delete(
        self,
        path: str,
        *,
        grace: int | None = None,
        uid: str | None = None,
        version: str | None = None,
    ) -> bool:
        """Delete an object; return whether there was one.

        Args:
            grace: seconds until what runs is killed; None: as the object says.
            uid: delete it only if it is this one.
            version: delete it only if it has not changed since.
        """
        body: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        conditions = {"uid": uid, "resourceVersion": version}
        if given := {name: value for name, value in conditions.items() if value is not None}:
            body["preconditions"] = given
        try:
            await self.call("DELETE", path, body=body)
        except ApiError as error:
            if error.missing:
                return False
            raise
        return True

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Object:
        """Make one request and return its answer.

        Raises:
            ApiError: it was refused, or not answered in time.
        """
        async with self._request(method, path, body, query, TIMEOUT) as answer:
            found: Object = await answer.json(content_type=None)
            return found

    async def watch(
        self, collection: str, selector: str, version: str
    ) -> AsyncGenerator[tuple[str, Object], None]:
        """Yield what happens to the selected objects after *version*, until the server ends it.

        Raises:
            ApiError: the connection broke; 410: *version* is too old, list again.
        """
        query = {
            "watch": "1",
            "labelSelector": selector,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
        }
        async with self._request("GET", collection, None, query, None) as answer:
            async for line in _lines(answer):
                event = json.loads(line)
                kind, changed = event["type"], event["object"]
                if kind == "ERROR":
                    raise ApiError(int(changed.get("code", 0)), str(changed.get("message", "")))
                yield kind, changed

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        body: Object | None,
        query: Mapping[str, str] | None,
        seconds: float | None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        limit = aiohttp.ClientTimeout(total=seconds, connect=TIMEOUT, sock_read=SILENCE)
        try:
            answer: aiohttp.ClientResponse = await self._client.call_api(
                path,
                method,
                query_params=list((query or {}).items()),
                header_params={"Accept": "application/json", "Content-Type": "application/json"},
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=limit,
            )
            async with answer:
                if answer.status >= 400:  # HTTP
                    raise await _refusal(answer)
                yield answer
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise ApiError(0, f"the cluster's API does not answer: {error!r}") from error


async def _lines(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield whole lines; the library's own limit of a line is far below an object's size."""
    kept = b""
    async for piece in answer.content.iter_any():
        *whole, kept = (kept + piece).split(b"\n")
        if len(kept) > MAX_LINE:
            raise ApiError(0, "an event of a watch is longer than any object")
        for line in whole:
            yield line


async def _refusal(answer: aiohttp.ClientResponse) -> ApiError:
    text = (await answer.read()).decode(errors="replace")
    try:
        status = json.loads(text)
        return ApiError(answer.status, str(status["message"]), str(status.get("reason", "")))
    except (ValueError, KeyError, TypeError):
        return ApiError(answer.status, text[:500])


def path(namespace: str, kind: str, name: str = "", *, group: str = "api/v1") -> str:
    """Return the path of a namespaced object, or of its collection."""
    below = f"/{quote(name, safe='')}" if name else ""
    return f"/{group}/namespaces/{quote(namespace, safe='')}/{kind}{below}"
