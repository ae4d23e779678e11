"""Sandboxes by the unmodified client of the OpenAI Agents SDK: made, resumed, deleted."""

import io
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from agents.extensions.sandbox.cloudflare import (
    CloudflareSandboxClient,
    CloudflareSandboxClientOptions,
)
from agents.sandbox import LocalSnapshotSpec
from agents.sandbox.errors import ConfigurationError
from agents.sandbox.session import SandboxSession


@pytest.fixture
def kept() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="atoll-snapshots-") as path:
        yield Path(path)


async def test_a_sandbox_lives_as_the_client_expects(
    options: CloudflareSandboxClientOptions, http: httpx2.AsyncClient
) -> None:
    client = CloudflareSandboxClient()
    session = await client.create(options=options)
    assert not await session.running()
    await session.start()
    assert await session.running()
    await session.write(Path("f"), io.BytesIO(b"x"))
    state = client.deserialize_session_state(client.serialize_session_state(session.state))
    await session.stop()
    resumed = await client.resume(state)
    await resumed.start()
    assert (await resumed.read(Path("f"))).read() == b"x"
    await client.delete(resumed)
    assert not await resumed.running()
    await resumed.stop()


async def test_a_snapshot_brings_the_workspace_to_a_new_sandbox(
    options: CloudflareSandboxClientOptions, kept: Path
) -> None:
    """The sandbox is gone in between: only the client's own archive is left."""
    client = CloudflareSandboxClient()
    session = await client.create(options=options, snapshot=LocalSnapshotSpec(base_path=kept))
    await session.start()
    await session.write(Path("d/f"), io.BytesIO(b"kept"))
    await session.exec("chmod 755 d/f; ln -s f d/l")
    await session.aclose()
    resumed = await client.resume(session.state)
    await resumed.start()
    assert (await resumed.exec("cat d/l; test -x d/f")).stdout == b"kept"
    await resumed.aclose()


async def test_a_wrong_key_is_the_clients_own_error(
    options: CloudflareSandboxClientOptions,
) -> None:
    wrong = CloudflareSandboxClientOptions(worker_url=options.worker_url, api_key="wrong")
    with pytest.raises(ConfigurationError, match="unauthorized: Unauthorized"):
        await CloudflareSandboxClient().create(options=wrong)


async def test_asking_whether_it_runs_wakes_nothing(
    box: SandboxSession, http: httpx2.AsyncClient
) -> None:
    base = str(http.base_url).removesuffix("/v1/")
    url = f"{base}/v2/namespaces/Sandbox/sandboxes/{box.state.model_dump()['sandbox_id']}"
    assert (await http.post(url + "/stop")).json()["state"] == "stopped"
    assert not await box.running()
    assert (await http.get(url)).json()["state"] == "stopped"
    assert (await box.exec("true")).exit_code == 0  # a call does
    assert await box.running()
