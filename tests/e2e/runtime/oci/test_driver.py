"""The driver with real containers. What the agent does in them is tested by its own suite."""

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
import pytest

from atoll.errors import ContainerUnavailableError
from atoll.runtime.base import ContainerSpec, Mount, Runtime
from atoll.runtime.oci.driver import OciRuntime
from atoll.settings import RuntimeSettings, StorageSettings
from e2e.runtime.boxes import Bench, Box
from e2e.runtime.roots import CACHE, ID_BASE
from integration.agent.client import alive, eventually

pytestmark = pytest.mark.e2e


def traces(bench: Bench, host_ref: str) -> list[str]:
    """Whatever of a container can still be found on the host."""
    places = ("*/atoll", "atoll")
    groups = [
        str(path)
        for place in places
        for path in Path("/sys/fs/cgroup").glob(f"{place}/{bench.home.name}/{host_ref}")
    ]
    files = [str(path) for path in bench.home.rglob(f"*{host_ref}*") if "roots" not in path.parts]
    links = [str(path) for path in CACHE.glob(f"agent/*.users/{host_ref}")]
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if host_ref in line]
    return groups + files + links + [line for line in mounts if "/roots/" not in line]


async def another_engine(bench: Bench) -> OciRuntime:
    """The same engine after a restart: nothing but its state directory is the same."""
    storage = StorageSettings(state_dir=bench.home / "state", cache_dir=CACHE)
    return await OciRuntime.open(RuntimeSettings(), storage, bench.home.name)


async def test_the_agent_answers_in_a_root_without_python_or_libc(box: Box) -> None:
    hello = box.call("hello")
    assert (hello["generation"], hello["pid"]) == (1, 1)
    assert box.sh("echo $((2 + 2))") == "4\n"


async def test_the_agent_answers_in_a_musl_root(bench: Bench) -> None:
    async with bench.running("musl") as box:
        assert box.sh("hi") == "musl says hi\n"


async def test_the_agent_answers_in_a_debian_root(bench: Bench) -> None:
    async with bench.running("debian") as box:
        assert box.exec("echo $BASH_VERSION").stdout.startswith(b"5.")
        assert "Debian" in box.sh("cat /etc/os-release")


async def test_nothing_is_left_after_remove(bench: Bench) -> None:
    async with bench.running() as box:
        host_ref = box.spec.host_ref
        assert traces(bench, host_ref)
    assert traces(bench, host_ref) == []
    assert not alive(box.pid)
    assert await bench.runtime.list() == []
    assert not list(Path("/sys/fs/cgroup").glob(f"*/atoll/{bench.home.name}"))


async def test_remove_may_be_repeated_and_asked_for_what_never_was(bench: Bench) -> None:
    async with bench.running() as box:
        await bench.runtime.remove(box.spec.host_ref)
        await bench.runtime.remove(box.spec.host_ref)
    await bench.runtime.remove("never-was")
    assert await bench.runtime.find("never-was") is None


async def test_an_engine_that_was_killed_finds_its_containers_again(bench: Bench) -> None:
    async with bench.running() as box:
        later = await another_engine(bench)
        assert await later.list() == [box.spec.host_ref]
        assert await later.find(box.spec.host_ref) == box.container
        assert box.call("hello")["generation"] == 1
        await later.remove(box.spec.host_ref)
    assert traces(bench, box.spec.host_ref) == []


async def test_a_container_whose_init_died_is_listed_but_not_found(bench: Bench) -> None:
    async with bench.running() as box:
        os.kill(box.pid, signal.SIGKILL)
        eventually(lambda: not alive(box.pid))
        assert await bench.runtime.find(box.spec.host_ref) is None
        assert await bench.runtime.list() == [box.spec.host_ref]
        with pytest.raises(ConnectionError):
            await bench.runtime.dial(box.spec.run_dir, box.spec.host_ref)


async def test_a_foreign_process_with_the_recorded_pid_is_neither_found_nor_killed(
    bench: Bench,
) -> None:
    """After a host's restart the recorded number may be anybody's."""
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        async with bench.running() as box:
            (box.spec.run_dir / "pid").write_text(str(stranger.pid))
            assert await bench.runtime.find(box.spec.host_ref) is None
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def missing_root(bench: Bench) -> dict[str, object]:
    return {"rootfs": bench.home / "no-such-root"}


def missing_mount(bench: Bench) -> dict[str, object]:
    return {"mounts": (Mount(source=bench.home / "no-such-file", target="/etc/hosts"),)}


def missing_netns(bench: Bench) -> dict[str, object]:
    return {"netns": bench.home / "no-such-netns"}


@pytest.mark.parametrize("wrong", [missing_root, missing_mount, missing_netns])
async def test_a_start_that_fails_says_why_and_leaves_nothing(
    bench: Bench, wrong: Callable[[Bench], dict[str, object]]
) -> None:
    spec = msgspec.structs.replace(bench.spec(), **wrong(bench))
    with pytest.raises(ContainerUnavailableError, match=r"(?i)no such file") as caught:
        await bench.runtime.start(spec)
    assert caught.value.context["reason"] == "runtime"
    assert traces(bench, spec.host_ref) == []


@pytest.mark.parametrize("delay", [0.0, 0.005, 0.015, 0.03])
async def test_a_start_that_is_cancelled_leaves_nothing(bench: Bench, delay: float) -> None:
    spec = bench.spec()
    starting = asyncio.ensure_future(bench.runtime.start(spec))
    await asyncio.sleep(delay)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert traces(bench, spec.host_ref) == []
    assert await bench.runtime.list() == []


async def test_a_start_that_is_cancelled_waits_for_its_thread(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or that makes a cgroup and opens a descriptor when all has been removed: nobody finds them."""
    spec, prepare = bench.spec(), bench.runtime._prepare
    begun, go_on, ended = (threading.Event() for _ in range(3))

    def slow(spec: ContainerSpec, opened: ExitStack) -> None:
        begun.set()
        go_on.wait(10)
        prepare(spec, opened)
        ended.set()

    monkeypatch.setattr(bench.runtime, "_prepare", slow)
    before = len(os.listdir("/proc/self/fd"))
    starting = asyncio.ensure_future(bench.runtime.start(spec))
    await asyncio.to_thread(begun.wait, 10)
    starting.cancel()
    asyncio.get_running_loop().call_later(0.2, go_on.set)
    await asyncio.wait([starting])
    await asyncio.to_thread(ended.wait, 10)
    assert starting.cancelled()
    assert traces(bench, spec.host_ref) == []
    assert len(os.listdir("/proc/self/fd")) == before


async def test_containers_start_at_once_without_getting_in_each_others_way(bench: Bench) -> None:
    specs = [bench.spec() for _ in range(6)]
    containers = await asyncio.gather(*(bench.runtime.start(spec) for spec in specs))
    assert len({container.pid for container in containers}) == 6
    for spec, container in zip(specs, containers, strict=True):
        assert Box(bench.runtime, spec, container).call("hello")["pid"] == 1
    await asyncio.gather(*(bench.runtime.remove(spec.host_ref) for spec in specs))
    assert [traces(bench, spec.host_ref) for spec in specs] == [[]] * 6


async def test_a_frozen_sandbox_does_nothing_and_goes_on_where_it_was(box: Box) -> None:
    await box.runtime.pause(box.spec.host_ref)
    with await box.runtime.dial(box.spec.run_dir, box.spec.host_ref):
        assert "D" in Path(f"/proc/{box.pid}/stat").read_text().rpartition(")")[2].split()[0]
    await box.runtime.resume(box.spec.host_ref)
    assert box.call("hello")["generation"] == 1


async def test_a_frozen_sandbox_can_be_removed(bench: Bench) -> None:
    async with bench.running() as box:
        await bench.runtime.pause(box.spec.host_ref)
    assert traces(bench, box.spec.host_ref) == []


async def test_the_agent_holds_sockets_and_files_but_no_directory(box: Box) -> None:
    """A directory descriptor is a way out; variables steer loaders and interpreters."""
    box.call("hello")

    held: dict[int, str] = {}

    def no_directory() -> bool:
        held.clear()
        for fd in range(64):
            with suppress(FileNotFoundError):  # the agent opens and closes some all the time
                path = Path(f"/proc/{box.pid}/fd/{fd}")
                held[fd] = os.readlink(path)
                if path.is_dir():
                    return False
        return True

    # It looks into directories for modules that it loads after its greeting.
    eventually(no_directory)
    assert all(held[fd].endswith(("/user/tasks", "/user/cgroup.procs")) for fd in (5, 6, 7)), held
    assert Path(f"/proc/{box.pid}/environ").read_bytes() == b"HOME=/\0"


async def test_a_path_longer_than_a_socket_address_works(bench: Bench) -> None:
    long = bench.home / ("d" * 120) / "run"
    long.parent.mkdir()
    async with bench.running(run_dir=long) as box:
        with await bench.runtime.dial(long, box.spec.host_ref) as connection:
            assert not connection.getblocking()


async def test_what_a_failed_agent_printed_can_be_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atoll.runtime.oci.bundle.START", "raise SystemExit('broken on purpose')")
    async with bench.running() as box:
        eventually(lambda: not alive(box.pid))
        assert "broken on purpose" in bench.runtime.log_tail(box.spec.host_ref)
        assert await bench.runtime.find(box.spec.host_ref) is None


async def test_commands_live_in_the_limited_group_and_the_agent_does_not(box: Box) -> None:
    groups = box.sh("cat /proc/self/cgroup")
    limited = [line for line in groups.splitlines() if line.endswith("/user")]
    assert {line.split(":")[1] for line in limited} == {"memory", "pids", "cpu"}
    assert "/user" not in Path(f"/proc/{box.pid}/cgroup").read_text()


async def test_memory_beyond_the_limit_kills_the_command_and_is_counted(bench: Bench) -> None:
    async with bench.running(memory=64 << 20) as box:
        grow = "x = b'x' * 2**20\nkeep = [x * 2 for _ in range(100)]"
        with pytest.raises(AssertionError):
            box.python(grow)
        assert box.call("hello")["pid"] == 1
        assert (await box.runtime.usage(box.spec.host_ref)).oom_kills >= 1


async def test_processes_beyond_the_limit_cannot_be_made(bench: Bench) -> None:
    async with bench.running(pids=20) as box:
        told = box.sh("for i in $(seq 40); do sleep 5 & done; wait", timeout=2.0)
        assert "fork" in told
        assert box.call("hello")["pid"] == 1


async def test_usage_tells_what_the_sandbox_uses(box: Box) -> None:
    box.sh("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
    usage = await box.runtime.usage(box.spec.host_ref)
    assert usage.cpu_time > 0.01
    assert usage.memory >= 0
    assert usage.oom_kills == 0


async def test_mounts_are_where_the_spec_says_and_as_writable(bench: Bench) -> None:
    shared, fixed = bench.home / "shared", bench.home / "fixed"
    shared.mkdir()
    os.chown(shared, ID_BASE, ID_BASE)
    fixed.write_text("10.0.0.1 box\n")
    mounts = (
        Mount(source=shared, target="/data", read_only=False),
        Mount(source=fixed, target="/etc/hosts"),
    )
    async with bench.running(mounts=mounts) as box:
        assert box.sh("echo hi > /data/x; cat /etc/hosts") == "10.0.0.1 box\n"
        assert (shared / "x").read_text() == "hi\n"
        assert "Read-only" in box.sh("echo no > /etc/hosts")


async def test_each_sandbox_says_its_own_name(bench: Bench) -> None:
    async with bench.running(hostname="one") as one, bench.running(hostname="two") as two:
        say = "hostname; cat /etc/hostname /etc/machine-id"
        told = one.sh(say).split(), two.sh(say).split()
    assert [told[0][:2], told[1][:2]] == [["one", "one"], ["two", "two"]]
    assert told[0][2] != told[1][2]


@pytest.fixture
def netns() -> Iterator[Path]:
    name = f"atoll-test-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    yield Path("/run/netns", name)
    subprocess.run(["ip", "netns", "del", name], check=True)


async def test_a_given_network_namespace_is_joined_and_not_owned(bench: Bench, netns: Path) -> None:
    """The engine made it: root inside can use it and change nothing of it."""
    async with bench.running(netns=netns) as box:
        inside = os.stat(f"/proc/{box.pid}/ns/net")
        assert (inside.st_dev, inside.st_ino) == (netns.stat().st_dev, netns.stat().st_ino)
        assert "lo:" in box.sh("cat /proc/net/dev")
        assert "ermitted" in box.sh("ip link set lo up")


async def test_the_driver_is_a_runtime(bench: Bench) -> None:
    driver: Runtime = bench.runtime
    assert (driver.level, driver.name) == ("container", bench.runtime.choice.name)
