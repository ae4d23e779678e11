"""Every file call in an image with nothing but one static program: the agent does it itself."""

import json
import tarfile
from io import BytesIO
from typing import Any

import pytest

from atoll import errors
from atoll.wire.frames import Kind
from e2e.runtime.boxes import Bench, Box

pytestmark = pytest.mark.e2e


def talk(box: Box, op: str, body: bytes | None = None, **fields: Any) -> tuple[Any, bytes]:
    """Return the reply of a file operation and the bytes that came with it."""
    data, reply = b"", None
    with box.connect() as connection:
        connection.header(op=f"fs.{op}", cwd="/workspace", **fields)
        if body is not None:
            connection.send(Kind.DATA, body)
            connection.send(Kind.END)
        for frame in connection:
            if frame.kind == Kind.ERROR:
                raise errors.from_wire(json.loads(frame.payload))
            if frame.kind == Kind.REPLY:
                reply = json.loads(frame.payload)
            data += frame.payload if frame.kind == Kind.DATA else b""
    return reply, data


async def test_all_calls_work_without_coreutils_and_python(bench: Bench) -> None:
    async with bench.running("busybox") as box:
        assert talk(box, "write_file", b"one two\n", path="d/f.txt")[0]["size"] == 8
        meta, data = talk(box, "read_file", path="d/f.txt")
        assert (meta["mimeType"], data) == ("text/plain", b"one two\n")
        talk(box, "mkdir", path="d/e", recursive=True)
        talk(box, "copy_file", source="d/f.txt", target="d/e/g.txt")
        talk(box, "move_file", source="d/e/g.txt", target="d/h.txt")
        talk(box, "rename_file", source="d/h.txt", target="d/i.txt")
        assert talk(box, "exists", path="d/i.txt")[0]["exists"]
        assert talk(box, "set_permissions", path="d/i.txt", mode=0o600)[0]["mode"] & 0o777 == 0o600
        listed = talk(box, "list_files", path="d", recursive=True)[0]["files"]
        assert [entry["relativePath"] for entry in listed] == ["e", "f.txt", "i.txt"]
        assert {entry["owner"] for entry in listed} == {"root"}
        assert len(talk(box, "search_files", path="d", pattern="*.txt")[0]["paths"]) == 2
        found = talk(box, "find_in_files", path="d", text="two")[0]["matches"]
        assert [(match["line"], match["column"]) for match in found] == [(1, 4), (1, 4)]
        changed = talk(box, "check_changes", path="d")[0]["version"]
        replaced = talk(box, "replace_in_files", paths=["d/f.txt"], old="two", new="2")[0]
        assert list(replaced["replaced"].values()) == [1]
        assert talk(box, "check_changes", path="d", since=changed)[0]["status"] == "changed"
        _, archive = talk(box, "download", path="d")
        assert talk(box, "upload", archive, path="copy")[0]["files"] >= 3
        with tarfile.open(fileobj=BytesIO(archive)) as opened:
            assert {"f.txt", "i.txt", "e"} <= {name.strip("./") for name in opened.getnames()}
        talk(box, "delete_file", path="d", recursive=True)
        assert box.sh("cat copy/f.txt; ls -A copy; ls", cwd="/workspace").split() == [
            "one", "2", "e", "f.txt", "i.txt", "copy",
        ]  # fmt: skip


async def test_a_watch_works_without_coreutils_and_python(bench: Bench) -> None:
    async with bench.running("busybox") as box:
        with box.connect() as watch:
            watch.header(op="fs.watch", path="/workspace")
            assert json.loads(watch.until(Kind.EVENT).payload)["type"] == "watching"
            box.sh("mkdir -p /workspace/a/b; echo x > /workspace/a/b/f")
            seen: list[str] = []
            while not seen or seen[-1] != "/workspace/a/b/f":
                seen.append(json.loads(watch.until(Kind.EVENT).payload)["path"])
            assert seen == ["/workspace/a", "/workspace/a/b", "/workspace/a/b/f"]
