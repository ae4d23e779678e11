import uuid
from contextlib import aclosing
from pathlib import Path

import pytest

import clusters
from atoll.runtime.kubernetes import api
from atoll.runtime.kubernetes.api import Api, ApiError


def secret(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": {"t": name}}}


async def test_a_cluster_that_is_not_there_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(ApiError, match="no cluster"):
        await Api.connect(tmp_path / "missing")
    config = tmp_path / "config"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "users: [{name: u, user: {token: t}}]\n"
        "contexts: [{name: x, context: {cluster: c, user: u}}]\n"
    )
    nobody = await Api.connect(config)
    with pytest.raises(ApiError, match="does not answer") as failure:
        await nobody.get("/api/v1/namespaces/x")
    assert failure.value.status == 0
    await nobody.close()


@clusters.needed
async def test_objects_are_made_once_read_and_deleted_only_as_what_they_were() -> None:
    name = f"t-{uuid.uuid4().hex[:8]}"
    where = clusters.settings().namespace
    path = api.path(where, "secrets", name)
    async with clusters.connected() as cluster:
        made = await cluster.create(api.path(where, "secrets"), secret(name))
        with pytest.raises(ApiError) as second:
            await cluster.create(api.path(where, "secrets"), secret(name))
        assert second.value.conflict
        with pytest.raises(ApiError) as other:
            await cluster.delete(path, uid="00000000-0000-0000-0000-000000000000")
        assert other.value.conflict
        assert await cluster.delete(path, uid=made["metadata"]["uid"])
        assert await cluster.get(path) is None
        assert not await cluster.delete(path)


@clusters.needed
async def test_a_watch_goes_on_from_where_a_list_ended() -> None:
    name = f"t-{uuid.uuid4().hex[:8]}"
    where = api.path(clusters.settings().namespace, "secrets")
    async with clusters.connected() as cluster:
        listed = await cluster.call("GET", where, query={"labelSelector": f"t={name}"})
        await cluster.create(where, secret(name))
        await cluster.delete(f"{where}/{name}")
        seen = []
        version = listed["metadata"]["resourceVersion"]
        async with aclosing(cluster.watch(where, f"t={name}", version)) as events:
            async for kind, _ in events:
                seen.append(kind)
                if kind == "DELETED":
                    break
        assert seen == ["ADDED", "DELETED"]
