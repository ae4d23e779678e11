"""Mounts by the unmodified client of the OpenAI Agents SDK: what fails is its own error."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from agents.sandbox.errors import MountConfigError
from agents.sandbox.session import SandboxSession

from e2e.server.bridge.conftest import Node
from integration.buckets import BUCKET, Server, serving
from integration.server.engines import EngineProcess

SECRET = {"accessKeyId": "a", "secretAccessKey": "b"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


@pytest.fixture(scope="module")
def engine(server: Server) -> Iterator[EngineProcess]:
    """One that may reach the server."""
    node = Node()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATOLL_STORAGE_BUCKET_ENDPOINTS", server.endpoint)
        found = node.start()
    yield found
    node.close(found)


async def test_a_bucket_is_a_folder_of_the_workspace(box: SandboxSession, server: Server) -> None:
    server.client().put_object(Bucket=BUCKET, Key="in/f", Body=b"hello")
    inner = box._inner
    options = {"endpoint": server.endpoint, "prefix": "/in", "credentials": server.credentials}
    await inner.mount_bucket(  # type: ignore[attr-defined]
        bucket=BUCKET, mount_path=Path("data"), options=options
    )
    done = await box.exec("cat data/f; echo back > data/g; env")
    assert b"hello" in done.stdout
    assert server.secret.encode() not in done.stdout
    await inner.unmount_bucket(Path("data"))  # type: ignore[attr-defined]
    body = server.client().get_object(Bucket=BUCKET, Key="in/g")["Body"]
    assert body.read() == b"back\n"


async def test_a_wrong_bucket_is_named_in_the_servers_words(
    box: SandboxSession, server: Server
) -> None:
    options = {"endpoint": server.endpoint, "credentials": server.credentials}
    with pytest.raises(MountConfigError) as caught:
        await box._inner.mount_bucket(  # type: ignore[attr-defined]
            bucket="no-such-bucket", mount_path=Path("data"), options=options
        )
    assert "NoSuchBucket" in str(caught.value.context["reason"])


async def test_a_mount_that_fails_is_the_clients_own_error(box: SandboxSession) -> None:
    inner = box._inner
    with pytest.raises(MountConfigError) as caught:
        await inner.mount_bucket(  # type: ignore[attr-defined]
            bucket="b", mount_path=Path("data"),
            options={"endpoint": "https://s3.invalid", "readOnly": True, "credentials": SECRET},
        )  # fmt: skip
    assert caught.value.context["http_status"] == 502
    assert str(caught.value.context["reason"]).startswith("mount failed: ")


async def test_a_mount_that_is_wrong_is_refused(box: SandboxSession) -> None:
    inner = box._inner
    with pytest.raises(MountConfigError) as caught:
        await inner.mount_bucket(  # type: ignore[attr-defined]
            bucket="b", mount_path=Path("data"), options={"endpoint": 7}
        )
    assert caught.value.context["http_status"] == 400


async def test_an_unmount_that_fails_is_the_clients_own_error(box: SandboxSession) -> None:
    with pytest.raises(MountConfigError) as caught:
        await box._inner.unmount_bucket(Path("data"))  # type: ignore[attr-defined]
    assert caught.value.context["http_status"] == 502
