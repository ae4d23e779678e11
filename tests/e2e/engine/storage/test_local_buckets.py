"""Folders of the host that stand for buckets, in real sandboxes, beside ``env.BUCKET`` of a Worker."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import atoll
from atoll import errors
from atoll.workers.buckets import opening, places
from atoll.workers.wrangler import Bucket
from e2e.engine.storage.test_mounts import AT, BOX, clients_of, code, sh, unmount
from e2e.hosts import SANDBOXES, Host
from integration.server.engines import EngineProcess, eventually

pytestmark = pytest.mark.timeout(180)

ENTRY = Bucket("DATA", "data")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project's folder."""
    return tmp_path_factory.mktemp("project")


@pytest.fixture(scope="module")
def node(root: Path) -> Iterator[tuple[Host, EngineProcess]]:
    if os.geteuid():
        pytest.skip("needs root")
    host = Host()
    yield host, started(host, root)
    host.close()


@pytest.fixture
def folder(root: Path) -> Path:
    """The folder of the objects, empty."""
    (place,) = places.folders([ENTRY], root).values()
    shutil.rmtree(place.parent, ignore_errors=True)
    place.mkdir(parents=True)
    return place


@pytest.fixture
def client(node: tuple[Host, EngineProcess], folder: Path) -> Iterator[httpx2.Client]:
    with node[1].client() as found:
        yield found
        for info in found.get(SANDBOXES).json()["sandboxes"]:
            found.delete(f"{SANDBOXES}/{info['id']}")


def started(host: Host, root: Path) -> EngineProcess:
    offered = {name: str(place) for name, place in places.folders([ENTRY], root).items()}
    offered["GONE"] = str(root / "gone")
    return host.start(ATOLL_STORAGE_LOCAL_BUCKETS=json.dumps(offered))


def mount(client: httpx2.Client, url: str = BOX, **fields: Any) -> httpx2.Response:
    body = {"bucket": "DATA", "localBucket": True, "path": AT, **fields}
    return client.post(url + "/mounts", json=body)


async def test_objects_are_files_both_ways(client: httpx2.Client, root: Path) -> None:
    bucket = opening.opened([ENTRY], root, {}, local=True)["DATA"]
    await bucket.put("from/worker.txt", "hello")
    answer = mount(client)
    assert answer.is_success, answer.text
    told = answer.json()
    assert (told["bucket"], told["provider"], told["active"]) == ("DATA", "local", True)
    assert str(root) not in answer.text
    assert sh(client, f"cat {AT}/from/worker.txt") == "hello"
    sh(client, f"mkdir {AT}/deep; echo inside > {AT}/deep/file; echo more >> {AT}/deep/file")
    file = places.folders([ENTRY], root)["DATA"] / "deep/file"
    eventually(lambda: file.exists() and file.read_text() == "inside\nmore\n", 20)
    found = await bucket.get("deep/file")
    assert found
    assert await found.text() == "inside\nmore\n"
    await bucket.put("from/worker.txt", "again")
    assert sh(client, f"cat {AT}/from/worker.txt") == "again"
    await bucket.delete("from/worker.txt")
    assert "No such file" in sh(client, f"cat {AT}/from/worker.txt")
    sh(client, f"rm {AT}/deep/file")
    assert await bucket.head("deep/file") is None
    assert unmount(client).is_success


async def test_uploads_in_parts_are_seen_when_they_are_whole(
    client: httpx2.Client, root: Path
) -> None:
    bucket = opening.opened([ENTRY], root, {}, local=True)["DATA"]
    upload = await bucket.create_multipart_upload("whole")
    part = await upload.upload_part(1, "x")
    assert mount(client).is_success
    assert sh(client, f"ls -A {AT}; ls {AT}/.atoll-multipart 2>&1 | grep -c 'No such'") == "1"
    await upload.complete([part])
    assert sh(client, f"cat {AT}/whole") == "x"


def test_nothing_inside_leads_out_of_the_folder(client: httpx2.Client, folder: Path) -> None:
    """Probes 4, 17 and 18: what reads the folder on the host follows no link of a sandbox."""
    secret = folder.parent / "secret"
    secret.write_text("secret of the host")
    (folder / "leading-out").symlink_to(secret)
    (folder / "above").symlink_to("..")
    assert mount(client).is_success
    tries = (
        f"ln -s ../secret {AT}/l; ln -s / {AT}/l2; ln /etc/passwd {AT}/h; mkfifo {AT}/p;"
        f" mknod {AT}/dev c 1 3; cat {AT}/leading-out {AT}/above/secret {AT}/../data/leading-out"
        f" '{AT}/..%2fsecret'; cp -a /etc/mtab {AT}/m; ls -A {AT}"
    )
    assert "secret of the host" not in sh(client, tries)
    sh(
        client,
        f"mkdir {AT}/.atoll-multipart; echo x > {AT}/.atoll-multipart/x; echo y > '{AT}/..%2fy'",
    )
    sh(client, f"echo z > {AT}/leading-out; echo z > {AT}/above/z; mv {AT}/leading-out {AT}/moved")
    links = {"leading-out", "above"}
    for path in folder.rglob("*"):
        assert path.name in links or not path.is_symlink()
        assert path.name in links or path.is_file() or path.is_dir()
    assert secret.read_text() == "secret of the host"
    assert {path.name for path in folder.parent.iterdir()} <= {"objects", "metadata", "secret"}


def test_a_prefix_and_read_only_hold_for_root_inside(client: httpx2.Client, folder: Path) -> None:
    """Probes 15 and 17; a prefix without a folder yet is made."""
    (folder / "a").mkdir()
    (folder / "a/out").write_text("out")
    answer = mount(client, prefix="a/b")
    assert answer.is_success, answer.text
    sh(client, f"echo in > {AT}/in")
    eventually((folder / "a/b/in").exists, 20)
    assert sh(client, f"ls -A {AT} {AT}/..") == f"{AT}:\nin\n\n{AT}/..:\ndata"
    assert unmount(client).is_success
    assert mount(client, prefix="a", readOnly=True).is_success
    assert sh(client, f"cat {AT}/b/in {AT}/out") == "in\nout"
    sh(client, f"mount -o remount,rw {AT}")
    assert "Read-only" in sh(client, f"echo x > {AT}/out; rm -rf {AT}/out")
    assert (folder / "a/out").read_text() == "out"


def test_files_belong_to_the_owner_of_the_folder(client: httpx2.Client, folder: Path) -> None:
    """The client has the rights of whoever owns the project, and no capability."""
    os.chown(folder, 4321, 4321)
    assert mount(client).is_success
    sh(client, f"mkdir {AT}/d; echo x > {AT}/d/f; chmod 4777 {AT}/d/f")
    eventually((folder / "d/f").exists, 20)
    for path in (folder / "d", folder / "d/f"):
        assert (path.stat().st_uid, path.stat().st_gid) == (4321, 4321)
        assert path.stat().st_mode & 0o7022 == 0
    assert sh(client, f"stat -c %U {AT}/d/f") == "root"


def test_it_survives_sleep_and_the_death_of_engine_and_client(
    node: tuple[Host, EngineProcess], client: httpx2.Client, folder: Path, root: Path
) -> None:
    assert mount(client).is_success
    sh(client, f"echo 1 > {AT}/f")
    assert client.post(BOX + "/stop").is_success
    assert clients_of(node[0]) == []
    assert sh(client, f"cat {AT}/f") == "1"
    (place,) = clients_of(node[0])
    os.killpg(json.loads((place / "process").read_bytes())["pid"], signal.SIGKILL)
    assert not client.get(BOX + "/mounts").json()["mounts"][0]["active"]
    client.post(BOX + "/stop")
    assert sh(client, f"cat {AT}/f; echo 2 > {AT}/g") == "1"
    eventually((folder / "g").exists, 20)


def test_another_engine_finds_it_served(host: Host, folder: Path, root: Path) -> None:
    engine = started(host, root)
    with engine.client() as client:
        assert mount(client).is_success
        sh(client, f"echo 1 > {AT}/f")
    engine.end(signal.SIGKILL)
    with started(host, root).client() as client:
        assert client.get(BOX + "/mounts").json()["mounts"][0]["active"]
        assert sh(client, f"cat {AT}/f; echo 2 > {AT}/f; cat {AT}/f") == "1\n2"
        assert unmount(client).is_success
        assert (folder / "f").read_text() == "2\n"


def test_what_is_not_there_is_told_and_nothing_is_mounted(client: httpx2.Client) -> None:
    for fields, expected in (
        ({"bucket": "OTHER"}, "INVALID_MOUNT_CONFIG"),
        ({"bucket": "/etc"}, "INVALID_MOUNT_CONFIG"),
        ({"bucket": "../data"}, "INVALID_MOUNT_CONFIG"),
        ({"bucket": "GONE"}, "BUCKET_MOUNT_ERROR"),
        ({"endpoint": "http://127.0.0.1:1"}, "INVALID_MOUNT_CONFIG"),
        ({"prefix": "../x"}, "INVALID_MOUNT_CONFIG"),
    ):
        answer = mount(client, **fields)
        assert code(answer) == expected, answer.text
    assert client.get(BOX + "/mounts").json()["mounts"] == []


def test_the_client_has_no_network(client: httpx2.Client, node: tuple[Host, EngineProcess]) -> None:
    assert mount(client).is_success
    (place,) = clients_of(node[0])
    group = json.loads((place / "process").read_bytes())["pid"]
    listed = subprocess.run(["ps", "-eo", "pid,comm"], capture_output=True, text=True, check=True)
    (pid,) = (
        int(line.split()[0])
        for line in listed.stdout.splitlines()
        if line.split()[1] == "rclone" and os.getpgid(int(line.split()[0])) == group
    )
    links = Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
    assert [link.partition(":")[0].strip() for link in links] == ["lo"]
    status = Path(f"/proc/{pid}/status").read_text()
    assert "CapEff:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status


async def test_a_program_offers_folders_of_its_own(host: Host, tmp_path: Path) -> None:
    host.start()
    async with atoll.local(state_dir=host.state_dir) as env:
        await env.offer_buckets({"MINE": tmp_path / "made"})
        (tmp_path / "made/f").write_text("x")
        box = atoll.get_sandbox(env.namespace("N"), "box")
        told = await box.mount_bucket("MINE", AT, local_bucket=True)
        assert (told.bucket, told.provider) == ("MINE", "local")
        assert (await box.exec(f"cat {AT}/f")).stdout == "x"
        await box.unmount_bucket(AT)
        await env.offer_buckets({})
        with pytest.raises(errors.InvalidMountConfigError, match="no local bucket"):
            await box.mount_bucket("MINE", AT, local_bucket=True)
