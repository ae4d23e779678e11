"""The client in a network of its own, with nothing but its files: what it may and what it can see."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll.storage.buckets import client, fuse, options, tools
from atoll.storage.buckets.confinement import Place
from atoll.storage.buckets.options import Credentials
from integration.buckets import BUCKET, Server, serving
from integration.server.engines import eventually

pytestmark = pytest.mark.e2e

UID = 0x6FFF_FFFF


@pytest.fixture
def server() -> Iterator[Server]:
    if os.geteuid():
        pytest.skip("needs root")
    with serving() as found:
        yield found


async def started(server: Server, folder: Path, netns: Path | None) -> fuse.FileSystem:
    source = options.source(
        bucket=BUCKET, endpoint=server.endpoint, provider=None, prefix=None, read_only=False,
        given=["connect_timeout=1", "retries=1"],
    )  # fmt: skip
    key = Credentials(access_key_id=server.key, secret_access_key=server.secret)
    place = Place(
        folder=folder, uid=UID, owner=1234, netns=netns, resolv_conf=Path("/etc/resolv.conf")
    )
    system = fuse.made("atoll-client-test", read_only=False)
    client.start(tools.serving(source), source, key, place, system.device)
    system.close_device()
    return system


def s3fs_of(folder: Path) -> int:
    """The process id of the client itself, below those that made its view."""
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True)
    ours = client._recorded(folder)
    assert ours is not None
    for line in listed.stdout.splitlines():
        pid, _, args = line.strip().partition(" ")
        if args.lstrip().startswith("s3fs") and os.getpgid(int(pid)) == ours.pid:
            return int(pid)
    return 0


async def test_it_has_no_privilege_and_sees_nothing_of_the_host(
    server: Server, tmp_path: Path
) -> None:
    system = await started(server, tmp_path / "c", None)
    assert os.fstat(system.mount).st_uid == 1234
    pid = s3fs_of(tmp_path / "c")
    status = Path(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert set(fields["Uid"].split()) == {str(UID)}
    assert {int(fields[name], 16) for name in ("CapPrm", "CapEff", "CapInh", "CapBnd")} == {0}
    assert fields["NoNewPrivs"] == "1"
    root = Path(f"/proc/{pid}/root")
    seen = {path.name for path in root.iterdir()}
    assert seen == {
        "bin",
        "dev",
        "etc",
        "lib",
        "lib64",
        "mnt",
        "opt",
        "proc",
        "secret",
        "tmp",
        "usr",
    }
    assert {path.name for path in (root / "etc").iterdir()} <= {"hosts", "resolv.conf", "ssl"}
    assert server.secret not in Path(f"/proc/{pid}/environ").read_text()
    assert server.secret not in Path(f"/proc/{pid}/cmdline").read_text()
    system.close()
    await client.stop(tmp_path / "c")
    assert not (tmp_path / "c").exists()


async def test_it_reaches_only_what_its_network_does(server: Server, tmp_path: Path) -> None:
    """The server is on the host's loopback: not that of another network."""
    with subprocess.Popen(
        ["unshare", "--net", sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as other:  # fmt: skip
        assert other.stdout
        other.stdout.readline()
        netns = Path(f"/proc/{other.pid}/ns/net")
        system = await started(server, tmp_path / "c", netns)
        with pytest.raises(OSError):
            os.fstat(system.mount)
        assert "onnect" in client.failure(tmp_path / "c", "").message
        system.close()
        eventually(lambda: not client.alive(tmp_path / "c"), 20)
        await client.stop(tmp_path / "c")
        other.communicate(b"\n", 20)
