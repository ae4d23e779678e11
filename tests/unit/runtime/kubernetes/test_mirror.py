import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from atoll.runtime.kubernetes.api import ApiError, Object
from atoll.runtime.kubernetes.mirror import Mirror


def pod(name: str, version: int, phase: str = "Running") -> Object:
    return {
        "metadata": {"name": name, "resourceVersion": str(version)},
        "status": {"phase": phase},
    }


class Scripted:
    """A cluster whose watches say and break as a test wants."""

    def __init__(self, *lists: list[Object]) -> None:
        self.lists = list(lists)
        self.events: asyncio.Queue[tuple[str, Object] | ApiError] = asyncio.Queue()
        self.asked: list[str] = []

    async def call(self, *_: Any, **__: Any) -> Object:
        found = self.lists.pop(0)
        return {"items": found, "metadata": {"resourceVersion": str(100 - len(self.lists))}}

    async def watch(
        self, _: str, __: str, version: str
    ) -> AsyncGenerator[tuple[str, Object], None]:
        self.asked.append(version)
        while True:
            event = await self.events.get()
            if isinstance(event, ApiError):
                raise event
            yield event


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atoll.runtime.kubernetes.mirror.PAUSE", 0.0)


async def opened(cluster: Scripted) -> Mirror:
    pods = Mirror(cluster, "pods", "l=v")  # type: ignore[arg-type]
    await pods.open()
    return pods


async def test_what_is_listed_and_what_is_watched_make_one_picture() -> None:
    cluster = Scripted([pod("a", 1)])
    pods = await opened(cluster)
    await cluster.events.put(("ADDED", pod("b", 2)))
    await cluster.events.put(("DELETED", pod("a", 3)))
    await pods.until("a", lambda found: found is None, 10)
    assert [one["metadata"]["name"] for one in pods.all()] == ["b"]
    await pods.close()


async def test_a_watch_that_breaks_goes_on_from_the_last_version_seen() -> None:
    cluster = Scripted([pod("a", 1)])
    pods = await opened(cluster)
    await cluster.events.put(("MODIFIED", pod("a", 7, "Failed")))
    await cluster.events.put(ApiError(0, "cut"))
    await cluster.events.put(("MODIFIED", pod("a", 8, "Running")))
    await pods.until(
        "a", lambda found: bool(found and found["metadata"]["resourceVersion"] == "8"), 10
    )
    assert cluster.asked == ["100", "7"]
    await pods.close()


async def test_a_watch_that_fell_behind_begins_anew_with_a_list() -> None:
    """What was deleted meanwhile must not be believed to run."""
    cluster = Scripted([pod("a", 1), pod("b", 1)], [pod("b", 5)])
    pods = await opened(cluster)
    await cluster.events.put(ApiError(410, "too old"))
    await pods.until("a", lambda found: found is None, 10)
    assert pods.get("b") is not None
    await pods.close()


async def test_a_wait_has_an_end() -> None:
    pods = await opened(Scripted([]))
    with pytest.raises(TimeoutError):
        await pods.until("a", lambda found: found is not None, 0.01)
    await pods.close()


async def test_what_is_older_than_what_is_known_is_not_believed() -> None:
    """An answer to a write of one's own overtakes the watch."""
    heard: list[tuple[str, bool]] = []
    mirror = Mirror(
        Scripted([]),  # type: ignore[arg-type]
        "pods",
        "l=v",
        lambda name, found: heard.append((name, found is not None)),
    )
    mirror.note(pod("a", 7, "Failed"))
    mirror.note(pod("a", 6))
    mirror.forget("a", 6)
    assert mirror.all() == [pod("a", 7, "Failed")]
    mirror.forget("a", 7)
    mirror.note(pod("a", 7))
    assert mirror.get("a") is None
    mirror.note(pod("a", 8))
    assert heard == [("a", True), ("a", False), ("a", True)]
