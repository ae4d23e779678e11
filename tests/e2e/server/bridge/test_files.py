"""Files and archives by the unmodified client of the OpenAI Agents SDK, and by plain HTTP."""

import asyncio
import io
import tarfile
from pathlib import Path

import httpx2
import pytest
from agents.sandbox.errors import (
    InvalidManifestPathError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.session import SandboxSession

from integration.server.engines import EngineProcess

EVERY_BYTE = bytes(range(256)) * 3
TAR = {"content-type": "application/octet-stream"}


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


async def test_files_keep_every_byte(box: SandboxSession) -> None:
    await box.write(Path("deep/er/a b ä.bin"), io.BytesIO(EVERY_BYTE))
    assert (await box.read(Path("deep/er/a b ä.bin"))).read() == EVERY_BYTE
    assert await box.read_bounded(Path("deep/er/a b ä.bin"), max_bytes=10) == EVERY_BYTE[:10]
    await box.write(Path("empty"), io.BytesIO(b""))
    assert (await box.read(Path("empty"))).read() == b""


@pytest.mark.filterwarnings("ignore:Sending a large body")
async def test_a_file_larger_than_the_original_allows_is_written(box: SandboxSession) -> None:
    large = bytes(40 << 20)
    await box.write(Path("large"), io.BytesIO(large))
    assert (await box.exec("stat -c %s large")).stdout == b"41943040\n"
    assert (await box.read(Path("large"))).read() == large


async def test_a_missing_file_is_the_clients_own_error(box: SandboxSession) -> None:
    with pytest.raises(WorkspaceReadNotFoundError):
        await box.read(Path("none"))


async def test_a_path_that_leads_out_is_the_clients_own_error(box: SandboxSession) -> None:
    await box.exec("ln -s /etc out")
    with pytest.raises(InvalidManifestPathError):
        await box.read(Path("out/passwd"))


async def test_a_workspace_goes_to_another_sandbox_and_back(
    box: SandboxSession, http: httpx2.AsyncClient
) -> None:
    await box.exec(
        "mkdir -p d/e skip/deep; printf x > d/e/f; chmod 750 d/e/f; ln -s f d/e/l; ln d/e/f hard;"
        "touch skip/deep/gone; printf y > ./-rf; mkdir empty"
    )
    box._inner.register_persist_workspace_skip_path(Path("skip"))
    stored = (await box.persist_workspace()).read()
    with tarfile.open(fileobj=io.BytesIO(stored)) as tar:
        names = {name.removeprefix("./") for name in tar.getnames()}
    assert {"d/e/f", "d/e/l", "hard", "-rf", "empty"} <= names
    assert not any(name.startswith("skip") for name in names)
    await box.exec("rm -rf -- d hard -rf empty")
    await box.hydrate_workspace(io.BytesIO(stored))
    shown = await box.exec("stat -c %a d/e/f; readlink d/e/l; cat hard ./-rf; ls -d empty")
    assert shown.stdout == b"750\nf\nxyempty\n"
    id = (await http.post("/sandbox")).json()["id"]
    assert (await http.post(f"/sandbox/{id}/hydrate", content=stored)).json() == {"ok": True}
    assert (await http.get(f"/sandbox/{id}/file/workspace/d/e/f")).content == b"x"
    assert (await http.delete(f"/sandbox/{id}")).status_code == 204


@pytest.mark.parametrize(
    "members",
    [
        [(member("../evil"), b"x")],
        [(member("/evil"), b"x")],
        [(member("d/../../evil"), b"x")],
        [(member("link", tarfile.SYMTYPE, "/"), b""), (member("link/evil"), b"x")],
        [(member("evil", tarfile.LNKTYPE, "/etc/passwd"), b"")],
        [(member("null", tarfile.CHRTYPE), b"")],
        [(member("fifo", tarfile.FIFOTYPE), b"")],
    ],
    ids=["parent", "absolute", "climbing", "through a link", "hard link", "device", "fifo"],
)
async def test_a_hostile_archive_changes_nothing(
    http: httpx2.AsyncClient, members: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    url = f"/sandbox/{(await http.post('/sandbox')).json()['id']}"
    body = archive((member("first"), b"x"), *members)
    answer = await http.post(url + "/hydrate", content=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request"), answer.text
    argv = ["sh", "-c", "ls -A /workspace; ls /evil"]
    shown = await http.post(url + "/exec", json={"argv": argv})
    assert "event: stdout" not in shown.text
    assert (await http.delete(url)).status_code == 204


async def test_a_virtual_environments_links_survive(http: httpx2.AsyncClient) -> None:
    """They point out of the workspace, and whoever keeps a workspace wants them back."""
    url = f"/sandbox/{(await http.post('/sandbox')).json()['id']}"
    body = archive((member("venv/python", tarfile.SYMTYPE, "/usr/bin/python3"), b""))
    assert (await http.post(url + "/hydrate", content=body)).json() == {"ok": True}
    stored = (await http.post(url + "/persist")).content
    assert (await http.post(url + "/hydrate", content=stored)).json() == {"ok": True}
    assert (await http.delete(url)).status_code == 204


@pytest.mark.parametrize(
    ("body", "text"), [(b"", "Empty tar payload"), (b"no tar" * 200, "not a tar archive")]
)
async def test_what_is_no_archive_is_refused(
    http: httpx2.AsyncClient, body: bytes, text: str
) -> None:
    id = (await http.post("/sandbox")).json()["id"]
    answer = await http.post(f"/sandbox/{id}/hydrate", content=body)
    assert answer.status_code == 400
    assert text in answer.json()["error"]
    assert (await http.delete(f"/sandbox/{id}")).status_code == 204


async def test_archives_of_any_size_take_no_memory_of_the_engine(
    http: httpx2.AsyncClient, engine: EngineProcess
) -> None:
    """300 MB both ways; the engine's peak grows by less than a tenth of it."""
    url = f"/sandbox/{(await http.post('/sandbox')).json()['id']}"
    argv = ["sh", "-c", "head -c 300000000 /dev/zero > big"]
    assert '{"exit_code":0}' in (await http.post(url + "/exec", json={"argv": argv})).text
    before = peak(engine)
    kept = Path(engine.state_dir / "kept.tar")
    with kept.open("wb") as file:
        async with http.stream("POST", url + "/persist") as answer:
            async for chunk in answer.aiter_raw():
                file.write(chunk)

    async def body() -> object:
        with kept.open("rb") as file:
            while data := await asyncio.to_thread(file.read, 1 << 20):
                yield data

    assert kept.stat().st_size > 300_000_000
    hydrated = await http.post(url + "/hydrate", content=body())  # type: ignore[arg-type]
    assert hydrated.json() == {"ok": True}
    assert peak(engine) - before < 30_000
    kept.unlink()
    assert (await http.delete(url)).status_code == 204


def peak(engine: EngineProcess) -> int:
    """The engine's largest memory so far in KiB."""
    status = Path(f"/proc/{engine.process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


async def test_an_error_of_the_workspace_is_the_clients_own(box: SandboxSession) -> None:
    await box.exec("touch file")
    with pytest.raises(WorkspaceArchiveWriteError):
        await box.write(Path("file/below"), io.BytesIO(b"x"))
