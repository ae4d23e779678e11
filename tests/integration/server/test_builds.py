import asyncio
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from atoll.engine.engine import Engine
from atoll.errors import ImageBuildFailedError
from atoll.server import builds


class Images:
    """Images that remember what they were asked to build."""

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}
        self.fails = False
        self.seconds = 0.0
        self.ended = False

    async def build(
        self, folder: Path, dockerfile: str, *, tag: str, network: Any, progress: Any
    ) -> Any:
        names = await asyncio.to_thread(lambda: sorted(p.name for p in folder.iterdir()))
        self.seen = {"folder": folder, "names": names, "dockerfile": dockerfile, "tag": tag}
        progress("STEP 1")
        if self.fails:
            raise ImageBuildFailedError("step 1 failed", context={"log": "no such file"})
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.ended = True
        return type("Image", (), {"reference": tag})()

    async def list(self) -> list[Any]:
        from datetime import UTC, datetime

        from atoll.wire.sandbox import ImageInfo

        made = datetime.now(UTC)
        return [ImageInfo(reference="x/y:1", digest="sha256:0", size=1, created_at=made)]


@pytest.fixture
def images(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Images]:
    found = Images()
    monkeypatch.setattr(type(engine), "images", found)
    yield found
    assert list(engine.settings.storage.state_dir.glob("context-*")) == []


def archive(*names: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = 3
            tar.addfile(info, io.BytesIO(b"abc"))
    return buffer.getvalue()


async def build(client: httpx2.AsyncClient, content: bytes) -> list[dict[str, Any]]:
    answer = await client.post("/v2/images/build?tag=x/y:1&dockerfile=D", content=content)
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_the_context_is_unpacked_built_and_forgotten(
    client: httpx2.AsyncClient, images: Images
) -> None:
    *progress, last = await build(client, archive("D", "app.py"))
    assert progress == [{"type": "progress", "message": "STEP 1"}]
    assert last["image"]["reference"] == "x/y:1"
    assert images.seen["names"] == ["D", "app.py"]
    assert images.seen["dockerfile"] == "D"


async def test_a_failed_build_ends_with_its_typed_error(
    client: httpx2.AsyncClient, images: Images
) -> None:
    images.fails = True
    last = (await build(client, archive("D")))[-1]
    assert last["error"]["code"] == "IMAGE_BUILD_FAILED"
    assert last["error"]["context"]["log"] == "no such file"


@pytest.mark.parametrize("content", [b"no archive", archive("../out")])
async def test_a_hostile_or_broken_context_is_refused_before_anything_is_built(
    client: httpx2.AsyncClient, images: Images, content: bytes
) -> None:
    [told] = await build(client, content)
    assert told["code"] == "INVALID_IMAGE"
    assert images.seen == {}


async def test_a_caller_that_leaves_ends_the_build_and_its_context(
    client: httpx2.AsyncClient, images: Images
) -> None:
    images.seconds = 60
    async with client.stream("POST", "/v2/images/build?tag=x/y:1", content=archive("D")) as told:
        async for line in told.aiter_lines():
            assert "STEP 1" in line
            break
    async with asyncio.timeout(5):
        while not images.ended or images.seen["folder"].exists():
            await asyncio.sleep(0.01)


async def test_an_absolute_name_stays_inside_the_context(
    client: httpx2.AsyncClient, images: Images
) -> None:
    await build(client, archive("D", "/etc/x"))
    assert images.seen["names"] == ["D", "etc"]


async def test_silence_is_broken_by_empty_lines(
    client: httpx2.AsyncClient, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "HEARTBEAT", 0.05)
    images.seconds = 0.3
    messages = [line.get("message") for line in await build(client, archive("D"))]
    assert messages[0] == "STEP 1"
    assert messages.count("") >= 2


async def test_stored_images_are_listed(client: httpx2.AsyncClient, images: Images) -> None:
    answer = await client.get("/v2/images")
    assert [image["reference"] for image in answer.json()["images"]] == ["x/y:1"]
