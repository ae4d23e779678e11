"""Buckets of Google Cloud Storage: mounted, in a Worker's `env`, and for backups."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll.workers.buckets.opening import opened
from atoll.workers.wrangler import Bucket as Entry
from e2e.engine.storage.test_mounts import AT, BOX, code, sh, unmount
from e2e.hosts import Host
from integration import gcs
from integration.buckets import BUCKET
from integration.gcs import Server
from integration.server.engines import EngineProcess, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

MB = 1_000_000


@pytest.fixture
def server() -> Iterator[Server]:
    with gcs.serving() as found:
        yield found


def started(host: Host, server: Server, **settings: str) -> EngineProcess:
    return host.start(ATOLL_STORAGE_BUCKET_ENDPOINTS=server.endpoint, **settings)


def wanted(server: Server) -> dict[str, object]:
    return {"bucket": BUCKET, "path": AT, "endpoint": server.endpoint, "provider": "gcs",
            "credentials": server.behind.credentials}  # fmt: skip


def test_files_are_written_renamed_and_deleted(host: Host, server: Server) -> None:
    with started(host, server).client() as client:
        client.timeout = 120
        answer = client.post(BOX + "/mounts", json=wanted(server))
        assert answer.is_success, answer.text
        assert answer.json()["provider"] == "gcs"
        sh(
            client,
            f"cd {AT}; echo one > f; mkdir d; mv f d/g; echo two >> d/g; echo > gone; rm gone",
        )
        told = sh(client, f"cd {AT}; head -c 60000000 /dev/zero > large && mv large moved")
        assert (told, sh(client, f"find {AT} -type f -printf '%P %s\\n' | sort")) == (
            "", "d/g 8\nmoved 60000000",
        )  # fmt: skip
        assert unmount(client).is_success
        listed = server.behind.client().list_objects_v2(Bucket=BUCKET)["Contents"]
        sizes = {entry["Key"]: entry["Size"] for entry in listed}
        assert sizes == {"d/": 0, "d/g": 8, "moved": 60_000_000}
        assert server.refused == []
        client.delete(BOX)


def test_an_operator_who_rules_the_only_client_out_is_told(host: Host, server: Server) -> None:
    with started(host, server, ATOLL_STORAGE_S3_CLIENT="rclone").client() as client:
        answer = client.post(BOX + "/mounts", json=wanted(server))
        assert code(answer) == "NOT_SUPPORTED_BY_RUNTIME"
        assert client.get(BOX + "/mounts").json()["mounts"] == []
        client.delete(BOX)


async def test_a_workers_bucket_keeps_and_deletes(server: Server, tmp_path: Path) -> None:
    values = {"R2_ENDPOINT": server.endpoint, "R2_ACCESS_KEY_ID": server.behind.key,
              "R2_SECRET_ACCESS_KEY": server.behind.secret}  # fmt: skip
    bucket = opened([Entry("DATA", BUCKET)], tmp_path, values, local=False)["DATA"]
    await bucket.put("a/small", b"1", custom_metadata={"by": "test"})
    await bucket.put("a/large", b"x" * 12 * MB)
    upload = await bucket.create_multipart_upload("a/parts")
    parts = [await upload.upload_part(number, b"y" * 6 * MB) for number in (1, 2)]
    assert (await upload.complete(parts)).size == 12 * MB
    keys = ["a/large", "a/parts", "a/small"]
    assert [found.key for found in (await bucket.list(prefix="a/")).objects] == keys
    await bucket.delete(keys)
    assert (await bucket.list(prefix="a/")).objects == []
    left = server.behind.client().list_objects_v2(Bucket=BUCKET)
    assert (left.get("Contents", []), server.refused) == ([], [])


def test_backups_are_made_restored_and_deleted(host: Host, server: Server) -> None:
    settings = {
        "ATOLL_BACKUPS_BUCKET": BUCKET, "ATOLL_BACKUPS_ENDPOINT": server.endpoint,
        "ATOLL_BACKUPS_ACCESS_KEY_ID": server.behind.key,
        "ATOLL_BACKUPS_SECRET_ACCESS_KEY": server.behind.secret,
    }  # fmt: skip
    with started(host, server, **settings).client() as client:
        sh(client, "head -c 20000000 /dev/urandom > random; sha256sum random > sum; echo kept > f")
        made = client.post(BOX + "/backups", json={"dir": "/workspace"}).json()
        assert made["bucket"] == BUCKET
        sh(client, "rm random; echo lost > f")
        assert client.post(BOX + "/backups/restore", json={"backup": made["id"]}).is_success
        assert sh(client, "sha256sum -c sum; cat f") == "random: OK\nkept"
        assert client.delete(f"/v2/namespaces/N/backups/{made['id']}").is_success
        there = server.behind.client()
        eventually(lambda: "Contents" not in there.list_objects_v2(Bucket=BUCKET), 30)
        assert server.refused == []
        client.delete(BOX)
