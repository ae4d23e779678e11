"""Folders between this host and a sandbox: complete or not at all."""

import io
import json
import tarfile
from pathlib import Path

import pytest

import atoll
from atoll import errors
from integration.sdk._async.test_files import WRITTEN, content
from integration.sdk.engine_double import Answer, EngineDouble, failing

STAT = "GET /files/stat"


def stat(kind: str) -> Answer:
    told = {
        "name": "x",
        "absolutePath": "/x",
        "type": kind,
        "size": 1,
        "modifiedAt": "2026-01-01T00:00:00Z",
        "mode": 0o644,
        "permissions": "rw-r--r--",
    }
    return Answer(json.dumps(told).encode())


def archive(**members: bytes) -> Answer:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name.replace("__", "../"))
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return Answer(body.getvalue(), headers={"atoll-result": '{"path": "/x"}'})


async def test_a_file_is_uploaded_with_its_mode(
    engine: EngineDouble, sandbox: atoll.Sandbox, tmp_path: Path
) -> None:
    engine.script("PUT /files", WRITTEN)
    (tmp_path / "f").write_bytes(b"abc")
    (tmp_path / "f").chmod(0o751)
    counts: list[int] = []
    assert (await sandbox.upload(tmp_path / "f", "x", progress=counts.append)).files == 1
    assert (engine.seen[0].body, engine.seen[0].query) == (b"abc", f"path=x&mode={0o751}")
    assert counts == [3]


async def test_a_folder_is_uploaded_as_one_archive(
    engine: EngineDouble, sandbox: atoll.Sandbox, tmp_path: Path
) -> None:
    engine.script("PUT /files/archive", Answer(b'{"path": "/x", "files": 1, "size": 3}'))
    (tmp_path / "f").write_bytes(b"abc")
    assert (await sandbox.upload(tmp_path, "x")).size == 3
    with tarfile.open(fileobj=io.BytesIO(engine.seen[0].body)) as tar:
        assert tar.getnames() == ["f"]


async def test_a_folder_is_downloaded_and_appears_when_it_is_complete(
    engine: EngineDouble, sandbox: atoll.Sandbox, tmp_path: Path
) -> None:
    engine.script(STAT, stat("directory"))
    engine.script("GET /files/archive", archive(a=b"1", b=b"2"))
    counts: list[int] = []
    target = await sandbox.download("x", tmp_path / "new" / "d", progress=counts.append)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {"a": b"1", "b": b"2"}
    assert counts
    assert [path.name for path in target.parent.iterdir()] == ["d"]


async def test_a_file_is_downloaded_with_its_mode(
    engine: EngineDouble, sandbox: atoll.Sandbox, tmp_path: Path
) -> None:
    engine.script(STAT, stat("file"))
    engine.script("GET /files", content(b"abc"))
    await sandbox.download("x", tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == b"abc"
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("kind", ["directory", "file"])
async def test_an_interrupted_download_leaves_nothing(
    engine: EngineDouble, sandbox: atoll.Sandbox, tmp_path: Path, kind: str
) -> None:
    cut = archive(a=b"1")
    cut.cut = 100
    broken = content(b"abc")
    broken.cut = 0
    engine.script(STAT, stat(kind))
    engine.script("GET /files/archive", cut)
    engine.script("GET /files", broken)
    with pytest.raises(errors.OperationInterruptedError):
        await sandbox.download("x", tmp_path / "new" / "d")
    assert list((tmp_path / "new").iterdir()) == []


async def test_an_archive_that_reaches_outside_is_refused(
    engine: EngineDouble, sandbox: atoll.Sandbox, tmp_path: Path
) -> None:
    engine.script(STAT, stat("directory"))
    engine.script("GET /files/archive", archive(a=b"1", __evil=b"2"))
    with pytest.raises(errors.SecurityError):
        await sandbox.download("x", tmp_path / "deep" / "d")
    assert list((tmp_path / "deep").iterdir()) == []
    assert not (tmp_path / "evil").exists()


async def test_what_is_missing_is_told_before_anything_is_made(
    engine: EngineDouble, sandbox: atoll.Sandbox, tmp_path: Path
) -> None:
    engine.script(STAT, failing(errors.FileNotFoundError("no x")))
    with pytest.raises(errors.FileNotFoundError):
        await sandbox.download("x", tmp_path / "new" / "d")
    with pytest.raises(FileNotFoundError):
        await sandbox.upload(tmp_path / "none", "x")
    assert not (tmp_path / "new").exists()
