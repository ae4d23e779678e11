"""One engine for the whole suite, and for each case a fresh sandbox with one of the clients.

Every case runs by the asynchronous SDK; those marked ``clients(…)`` also by others, as does every
case with ``--all-clients`` (but for what a client cannot express).
"""

import asyncio
import fcntl
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import atoll
import atoll.sync
import rootless
from atoll.cli.doctor import examine
from atoll.errors import NotSupportedByRuntimeError
from atoll.images.store import ImageStore
from atoll.load_settings import load
from conformance.clients import CLIENTS, AsyncClient, Client
from conformance.differences import REFUSED, of_bwrap, of_gvisor, of_pods


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "clients(*names): other clients that run this case too")
    config.addinivalue_line("markers", "beyond_bwrap(row): of the differences in docs/rootless.md")
    config.addinivalue_line(
        "markers", "beyond_gvisor(row): of the differences in docs/isolation.md"
    )
    config.addinivalue_line("markers", "beyond_pods(row): of the differences in docs/kubernetes.md")
    config.addinivalue_line("markers", "container: harms or needs more than the fake runtime has")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "box" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("clients")
    others = list(marker.args) if marker else []
    if metafunc.config.getoption("--all-clients"):
        others += [name for name in ("sync", "http") if name not in others]
    names = ["async", *others]
    parameters = [pytest.param(name, marks=pytest.mark.client(name)) for name in names]
    metafunc.parametrize("client_name", parameters)


@pytest.fixture(scope="session")
def level(request: pytest.FixtureRequest) -> str:
    """The isolation level of this run."""
    wanted = str(request.config.getoption("--level"))
    if wanted != "auto":
        return wanted
    reason = asyncio.run(_missing())
    if reason and os.environ.get("ATOLL_CI"):
        pytest.fail(f"no real containers on the machine of a CI run: {reason}")
    if reason:
        return "fake"
    return "bwrap" if os.geteuid() else "container"


async def _missing() -> str | None:
    settings = load().settings
    report = await examine(settings)
    if report.isolation is None:
        return str([check for check in report.checks if check.verdict == "failed"])
    images = await ImageStore(settings.storage, settings.images).list()
    if not any(image.reference.startswith("atoll/base") for image in images):
        return "the base image is not built (make run, or atoll image build-base)"
    return None


@pytest.fixture(autouse=True)
def _fits(request: pytest.FixtureRequest, level: str) -> None:
    if level.startswith("fake") and request.node.get_closest_marker("container"):
        pytest.skip("the fake runtime runs on the host itself")
    if level == "bwrap" and (marker := request.node.get_closest_marker("beyond_bwrap")):
        _as_documented(request, marker.args[0], of_bwrap())
    if level == "gvisor" and (marker := request.node.get_closest_marker("beyond_gvisor")):
        _as_documented(request, marker.args[0], of_gvisor())
    if level == "kubernetes" and (marker := request.node.get_closest_marker("beyond_pods")):
        _as_documented(request, marker.args[0], of_pods())


def _as_documented(request: pytest.FixtureRequest, row: str, rows: dict[str, str]) -> None:
    """What is refused must be refused by its typed error; what is otherwise is tested elsewhere."""
    told = rows[row]
    if REFUSED not in told:
        pytest.skip(f"{row}: {told}")
    refused = pytest.mark.xfail(raises=NotSupportedByRuntimeError, strict=True, reason=told)
    request.node.add_marker(refused)


@pytest.fixture(scope="session")
def url(level: str) -> Iterator[str]:
    """Address of the engine of this run."""
    if level == "bwrap" and os.geteuid() == 0:
        with rootless.user() as lent, rootless.engine(lent) as ready:
            yield f"unix://{ready['socket']}"
        return
    state_dir = Path(tempfile.mkdtemp(prefix="atoll-conformance-", dir="/tmp"))
    with atoll.sync.local(state_dir=state_dir) as env:
        # Only while the engine starts: this fixture lives on beside tests of other levels.
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ATOLL_RUNTIME_DEFAULT", level)
            env.version()
        yield env.transport.endpoint.shown
    _remove(state_dir)


def _remove(state_dir: Path) -> None:
    """Wait for the engine, which ends with its last lease, and remove what it left mounted."""
    with (state_dir / "engine.lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.ismount(state_dir / "layers"):
            subprocess.run(["umount", state_dir / "layers"], check=True)
        shutil.rmtree(state_dir)


@pytest.fixture
def sandbox_id() -> str:
    return f"c-{uuid.uuid4().hex[:10]}"


@pytest.fixture
async def box(url: str, sandbox_id: str, client_name: str) -> AsyncIterator[Client]:
    """A fresh sandbox, used by the client of this run."""
    client = CLIENTS[client_name](url, sandbox_id)
    yield client
    await client.close()
    await _destroy(url, sandbox_id)


@pytest.fixture
async def sandbox(url: str, sandbox_id: str) -> AsyncIterator[atoll.Sandbox]:
    """A fresh sandbox for cases about the asynchronous SDK itself."""
    client = AsyncClient(url, sandbox_id)
    yield client.sandbox
    await client.close()
    await _destroy(url, sandbox_id)


async def _destroy(url: str, sandbox_id: str) -> None:
    async with atoll.connect(url) as env:
        with suppress(atoll.SandboxError):
            await atoll.get_sandbox(env.Sandbox, sandbox_id).destroy()
