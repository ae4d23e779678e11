"""Dockerfiles are built as people write them, steps really run, and failures say what failed."""

import asyncio
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from atoll.errors import (
    ImageBuildFailedError,
    ImageNotFoundError,
    ImagePullFailedError,
    InvalidImageError,
)
from atoll.images.build import BuildNetwork
from atoll.images.certificates import TARGET
from atoll.images.store import ImageStore
from atoll.settings import ImageSettings, StorageSettings
from e2e.images.registry import layer, serve

QUICKSTART = Path(__file__).parents[3] / "examples/quickstart"

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("no_mounts_left")]
"""The first test on a fresh host builds the base image and hands it to the builder."""


@pytest.fixture
async def built(host_store: ImageStore) -> AsyncIterator[ImageStore]:
    """The host's store with the base image; names the tests made are removed."""
    await host_store.build_base()
    yield host_store
    for info in await host_store.list():
        if info.reference.startswith("docker.io/atoll-test/"):
            await host_store.remove(info.reference)


# A step that ran before is taken from the cache and prints nothing: those whose output a test
# looks at have something of their own in them.
def write(folder: Path, *lines: str) -> Path:
    (folder / "Dockerfile").write_text("\n".join(lines) + "\n")
    return folder


async def test_the_quick_starts_dockerfile_builds_as_written(built: ImageStore) -> None:
    lines: list[str] = []
    image = await built.build(QUICKSTART, tag="atoll-test/quick", progress=lines.append)
    base = await built.resolve("atoll/base")
    assert image.layers[-1] == base.layers[0]
    assert image.config.ports == (3000, 8080)
    assert image.config.workdir == "/workspace"
    assert any("pandas" in line for line in lines)

    again: list[str] = []
    same = await built.build(QUICKSTART, tag="atoll-test/quick", progress=again.append)
    assert same.digest == image.digest
    assert any("Using cache" in line for line in again)


async def test_a_package_that_is_not_in_the_base_is_installed(
    built: ImageStore, tmp_path: Path
) -> None:
    """The step needs the network, and the host's extra certificates where it has some."""
    write(
        tmp_path, "FROM cloudflare/sandbox:0.12.0-python", "RUN pip3 install --no-cache-dir cowsay"
    )
    image = await built.build(tmp_path, tag="atoll-test/cowsay")
    assert list(image.layers[0].glob("usr/local/lib/python3*/dist-packages/cowsay"))
    assert not list((await built.resolve("atoll/base")).layers[0].rglob("cowsay"))


async def test_the_hosts_certificates_leave_nothing_in_an_image(
    built: ImageStore, tmp_path: Path
) -> None:
    write(
        tmp_path,
        "FROM atoll/base",
        f"RUN touch /seen; cp -r {TARGET} /seen.d || true; rm -rf /seen.d",
    )
    image = await built.build(tmp_path, tag="atoll-test/trust")
    trust = await built.trust()
    assert not set(trust.env if trust else ()) & set(image.config.env)
    files = [p for layer in image.layers[:-1] for p in layer.rglob("*") if p.is_file()]
    assert [p.name for p in files if p.stat().st_size] == []


async def test_a_failing_step_is_named_with_the_end_of_its_log(
    built: ImageStore, tmp_path: Path
) -> None:
    write(tmp_path, "FROM atoll/base", "RUN echo last words; exit 7")
    with pytest.raises(ImageBuildFailedError) as caught:
        await built.build(tmp_path, tag="atoll-test/fails")
    assert "exit 7" in caught.value.context["step"]
    assert "last words" in caught.value.context["log"]
    with pytest.raises(ImageNotFoundError):
        await built.resolve("atoll-test/fails")


async def test_an_image_that_cannot_be_had_is_a_pull_failure(
    built: ImageStore, tmp_path: Path
) -> None:
    write(tmp_path, "FROM 127.0.0.1:1/app", "RUN true")
    with pytest.raises(ImagePullFailedError):
        await built.build(tmp_path, tag="atoll-test/none")


async def test_an_image_of_a_registry_is_built_upon(built: ImageStore, tmp_path: Path) -> None:
    with serve() as registry:
        registry.add("app", layer({"hello": b"1"}), config={"Env": ["A=1"]})
        write(
            tmp_path, f"FROM {registry.address}/app AS x", "FROM x", "COPY Dockerfile /d", "ENV B=2"
        )
        image = await built.build(tmp_path, tag="atoll-test/upon")
    assert [sorted(p.name for p in path.iterdir()) for path in image.layers] == [["d"], ["hello"]]
    assert {"A": "1", "B": "2"}.items() <= image.config.env.items()


async def test_an_image_built_here_is_built_upon(built: ImageStore, tmp_path: Path) -> None:
    write(tmp_path, "FROM atoll/base", "ENV FIRST=1")
    await built.build(tmp_path, tag="atoll-test/first")
    write(tmp_path, "ARG FROM", "FROM $FROM", "ENV SECOND=2")
    image = await built.build(
        tmp_path, tag="atoll-test/second", build_args={"FROM": "atoll-test/first"}
    )
    assert {"FIRST": "1", "SECOND": "2"}.items() <= image.config.env.items()


async def test_an_alias_is_used_even_for_an_image_that_can_be_had(
    built: ImageStore, tmp_path: Path
) -> None:
    aliased = ImageStore(StorageSettings(), ImageSettings(image_aliases={"python": "atoll/base"}))
    write(tmp_path, "FROM python:3.12-slim", "ENV A=1")
    image = await aliased.build(tmp_path, tag="atoll-test/alias")
    assert image.layers[-1] == (await built.resolve("atoll/base")).layers[0]


async def test_a_link_out_of_the_context_brings_nothing_of_the_host(
    built: ImageStore, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret of the host")
    folder = tmp_path / "context"
    (folder / "data").mkdir(parents=True)
    (folder / "data/file").symlink_to(secret)
    (folder / "link").symlink_to(secret)
    write(folder, "FROM scratch", "COPY data /data")
    image = await built.build(folder, tag="atoll-test/links")
    assert (image.layers[0] / "data/file").is_symlink()
    write(folder, "FROM scratch", "COPY link /link")
    with pytest.raises(ImageBuildFailedError):
        await built.build(folder, tag="atoll-test/links")


async def test_a_name_of_the_base_image_cannot_be_taken(built: ImageStore, tmp_path: Path) -> None:
    write(tmp_path, "FROM atoll/base")
    with pytest.raises(InvalidImageError):
        await built.build(tmp_path, tag="atoll/base")


async def test_a_cancelled_build_leaves_nothing_and_the_next_one_works(
    built: ImageStore, tmp_path: Path
) -> None:
    write(tmp_path, "FROM atoll/base", "RUN sleep 4711")
    lines: list[str] = []
    build = asyncio.create_task(built.build(tmp_path, tag="atoll-test/slow", progress=lines.append))
    while not any("sleep 4711" in line for line in lines):
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)
    build.cancel()
    with pytest.raises(asyncio.CancelledError):
        await build
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert "sleep 4711" not in running
    assert list(Path("/sys/fs/cgroup").glob("**/atoll-builds/*/")) == []
    write(tmp_path, "FROM atoll/base", "RUN true")
    await built.build(tmp_path, tag="atoll-test/slow")


async def test_steps_are_bounded(built: ImageStore, tmp_path: Path) -> None:
    script = "p=/sys/fs/cgroup; cat $p/memory/memory.limit_in_bytes || cat $p/memory.max"
    write(
        tmp_path, "FROM atoll/base", f"RUN : {uuid4()}; {script} 2>/dev/null; cat /proc/self/cgroup"
    )
    lines: list[str] = []
    small = ImageStore(StorageSettings(), ImageSettings(build_memory_mib=333))
    await small.build(tmp_path, tag="atoll-test/bounded", progress=lines.append)
    assert str(333 << 20) in lines
    assert any("atoll-builds" in line or line == "0::/" for line in lines)


async def test_steps_can_run_in_a_network_of_their_own(built: ImageStore, tmp_path: Path) -> None:
    """The engine gives one with a sandbox's policy; the host's services are out of reach.

    The builder is in it as well: it fetches what `ADD` names, here from the host's own loopback.
    """
    name = "atoll-test-build"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        write(tmp_path, "FROM atoll/base", f"RUN : {uuid4()}; cat /proc/net/dev /etc/resolv.conf")
        lines: list[str] = []
        network = BuildNetwork(Path("/run/netns", name), ("192.0.2.53",))
        await built.build(tmp_path, tag="atoll-test/net", progress=lines.append, network=network)
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)
    assert [
        line.split(":")[0].strip() for line in lines if line.count(":") == 1 and " 0 " in line
    ] == ["lo"]
    assert "nameserver 192.0.2.53" in lines


async def test_a_build_with_a_network_of_its_own_adds_nothing_from_the_hosts(
    built: ImageStore, tmp_path: Path
) -> None:
    name = "atoll-test-add"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(0)
            url = f"http://127.0.0.1:{server.getsockname()[1]}/x"
            write(tmp_path, "FROM atoll/base", f"ADD {url} /x")
            network = BuildNetwork(Path("/run/netns", name), ())
            with pytest.raises(ImageBuildFailedError):
                await built.build(tmp_path, tag="atoll-test/add", network=network)
            with pytest.raises(BlockingIOError):
                server.accept()
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


async def test_builds_at_the_same_time_take_turns(built: ImageStore, tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        write(folder, "FROM atoll/base", f"ENV NAME={folder.name}", "RUN sleep 0.3")
    other = ImageStore(StorageSettings(), ImageSettings())
    images = await asyncio.gather(
        built.build(folders[0], tag="atoll-test/a"), other.build(folders[1], tag="atoll-test/b")
    )
    assert [image.config.env["NAME"] for image in images] == ["a", "b"]
