"""A cluster's API in memory, as far as it is used: versions, conflicts, watches, and its absence."""

import asyncio
import copy
import itertools
import uuid
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from atoll.runtime.kubernetes.api import ApiError, Object


class Objects:
    """Implements `Api`."""

    def __init__(self) -> None:
        self.there: dict[str, Object] = {}
        self.away = False
        self.lag = 0.0  # seconds after which watches hear of something
        self.writes = 0
        self._versions = itertools.count(1)
        self._version = 0
        self._events: list[tuple[int, str, str, Object]] = []
        self._news = asyncio.Event()

    async def get(self, path: str) -> Object | None:
        self._answer()
        return copy.deepcopy(self.there.get(path))

    async def create(self, collection: str, body: Object) -> Object:
        self._answer()
        path = f"{collection}/{body['metadata']['name']}"
        await asyncio.sleep(0)
        if path in self.there:
            raise ApiError(409, "exists")
        made = copy.deepcopy(body)
        made["metadata"]["uid"] = uuid.uuid4().hex
        return self._put(path, "ADDED", made)

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Object:
        self._answer()
        await asyncio.sleep(0)
        if method == "GET":
            found = [one for name, one in self.there.items() if name.startswith(f"{path}/")]
            meta = {"resourceVersion": str(self._version)}
            return copy.deepcopy({"items": found, "metadata": meta})
        assert method == "PUT"
        assert body
        old = self.there.get(path)
        if old is None:
            raise ApiError(404, "gone")
        if body["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]:
            raise ApiError(409, "changed")
        made = copy.deepcopy(body)
        made["metadata"]["uid"] = old["metadata"]["uid"]
        return self._put(path, "MODIFIED", made)

    async def delete(
        self, path: str, *, grace: int | None = None, uid: str | None = None,
        version: str | None = None,
    ) -> bool:  # fmt: skip
        self._answer()
        await asyncio.sleep(0)
        old = self.there.get(path)
        if old is None:
            return False
        about = old["metadata"]
        if uid not in {None, about["uid"]} or version not in {None, about["resourceVersion"]}:
            raise ApiError(409, "another one")
        del self.there[path]
        self._put(path, "DELETED", old)
        return True

    async def watch(
        self, collection: str, _: str, version: str
    ) -> AsyncGenerator[tuple[str, Object], None]:
        last = int(version)
        while True:
            self._answer()
            self._news.clear()
            for number, kind, path, body in self._events.copy():
                if number > last and path.startswith(f"{collection}/"):
                    await asyncio.sleep(self.lag)
                    yield kind, copy.deepcopy(body)
                last = max(last, number)
            if last == self._version:
                await self._news.wait()

    def _put(self, path: str, kind: str, body: Object) -> Object:
        self._version = next(self._versions)
        body["metadata"]["resourceVersion"] = str(self._version)
        if kind != "DELETED":
            self.there[path] = body
            self.writes += 1
        self._events.append((self._version, kind, path, copy.deepcopy(body)))
        self._news.set()
        return copy.deepcopy(body)

    def _answer(self) -> None:
        if self.away:
            raise ApiError(0, "the cluster's API does not answer")

    def leave(self) -> None:
        """Be away; watches break."""
        self.away = True
        self._news.set()

    def kinds(self) -> dict[str, int]:
        """Return how many objects there are of each plural."""
        counted: dict[str, Any] = {}
        for path in self.there:
            plural = path.split("/")[-2]
            counted[plural] = counted.get(plural, 0) + 1
        return counted
