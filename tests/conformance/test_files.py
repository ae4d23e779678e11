"""Cases F: files."""

import hashlib
import io
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

import atoll
from atoll import errors
from conformance.clients import Client


@pytest.mark.container
@pytest.mark.clients("sync", "http", "cli", "bridge")
@pytest.mark.parametrize("size", [0, 1, 20_000, 120_000, 5 << 20])
async def test_f01_content_comes_back_as_it_was(box: Client, size: int) -> None:
    data = os.urandom(size)
    await box.write("/workspace/round", data)
    assert (
        hashlib.sha256(await box.read("/workspace/round")).digest() == hashlib.sha256(data).digest()
    )


@pytest.mark.slow
async def test_f01_two_hundred_megabytes_are_streamed_both_ways(sandbox: atoll.Sandbox) -> None:
    piece, digest, count = os.urandom(1 << 20), hashlib.sha256(), 0

    async def content() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield piece

    written = await sandbox.write_file("/tmp/big", content())
    async for chunk in sandbox.read_file_stream("/tmp/big"):
        digest.update(chunk)
        count += len(chunk)
    assert written.size == count == 200 << 20
    assert digest.digest() == hashlib.sha256(piece * 200).digest()


async def test_f01_all_kinds_of_content_can_be_written(sandbox: atoll.Sandbox) -> None:
    contents: list[Any] = [
        "äx",
        "äx".encode(),
        io.BytesIO("äx".encode()),
        io.StringIO("äx"),
        iter(["ä", "x"]),
    ]
    for content in contents:
        await sandbox.write_file("f", content)
        assert (await sandbox.read_file("f")).content == "äx"
    await sandbox.write_file("f", "AAE=", encoding="base64")
    assert (await sandbox.read_file("f", encoding="bytes")).content == b"\0\1"
    await sandbox.write_file("f", "more", append=True)
    assert (await sandbox.read_file("f", encoding="bytes")).content == b"\0\1more"


@pytest.mark.container
async def test_f02_all_byte_values_in_every_encoding(sandbox: atoll.Sandbox) -> None:
    data = bytes(range(256))
    await sandbox.write_file("/tmp/all", data)
    plain = await sandbox.read_file("/tmp/all")
    assert (plain.encoding, plain.is_binary, plain.size) == ("base64", True, 256)
    assert (await sandbox.read_file("/tmp/all", encoding="bytes")).content == data
    part = await sandbox.read_file("/tmp/all", encoding="bytes", offset=10, length=5)
    assert (part.content, part.size) == (data[10:15], 256)
    with pytest.raises(errors.ValidationFailedError):
        await sandbox.read_file("/tmp/all", encoding="utf-8")
    await sandbox.write_file("/tmp/text", "ü\n")
    text = await sandbox.read_file("/tmp/text")
    assert (text.content, text.encoding, text.is_binary) == ("ü\n", "utf-8", False)


@pytest.mark.container
async def test_f04_listing_shows_what_is_there(sandbox: atoll.Sandbox) -> None:
    await sandbox.exec(["sh", "-c", "mkdir -p d/.hidden/e; cd d; touch a .b; ln -s ../d loop"])
    plain = await sandbox.list_files("/workspace/d")
    assert [entry.name for entry in plain.files] == ["a", "loop"]
    every = await sandbox.list_files("/workspace/d", recursive=True, include_hidden=True)
    assert {entry.relative_path for entry in every.files} == {
        "a",
        "loop",
        ".b",
        ".hidden",
        ".hidden/e",
    }
    types = {entry.name: entry.type for entry in every.files}
    assert (types["a"], types["loop"], types["e"]) == ("file", "symlink", "directory")


@pytest.mark.container
async def test_f04_listing_pages(sandbox: atoll.Sandbox) -> None:
    await sandbox.exec(["sh", "-c", "mkdir p; cd p; seq 250 | xargs touch"])
    names: list[str] = []
    cursor = None
    while True:
        page = await sandbox.list_files("/workspace/p", cursor=cursor, limit=100)
        names += [entry.name for entry in page.files]
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(names, key=int) == [str(number) for number in range(1, 251)]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("read_file", errors.FileNotFoundError),
        ("list_files", errors.FileNotFoundError),
        ("stat", errors.FileNotFoundError),
        ("delete_file", errors.FileNotFoundError),
    ],
)
async def test_f04_what_is_missing_is_typed_with_its_path(
    sandbox: atoll.Sandbox, call: str, error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        await getattr(sandbox, call)("/no/such")
    assert isinstance(caught.value, errors.SandboxError)
    assert caught.value.context["path"] == "/no/such"


@pytest.mark.container
async def test_f05_a_dangling_link_is_written_through_inside_the_root(
    sandbox: atoll.Sandbox,
) -> None:
    await sandbox.exec(["ln", "-s", "/tmp/new-target", "link"])
    await sandbox.write_file("link", "x")
    assert (await sandbox.read_file("/tmp/new-target")).content == "x"


@pytest.mark.container
async def test_f06_a_read_only_place_is_typed(sandbox: atoll.Sandbox) -> None:
    with pytest.raises(errors.SandboxError) as caught:
        await sandbox.write_file("/sys/x", "x")
    assert isinstance(caught.value, errors.ReadOnlyError | errors.PermissionDeniedError)


async def test_the_small_calls_do_what_they_say(sandbox: atoll.Sandbox) -> None:
    await sandbox.mkdir("a/b", recursive=True)
    await sandbox.write_file("a/b/f", "1", mode=0o640)
    assert (await sandbox.stat("a/b/f")).mode & 0o777 == 0o640
    await sandbox.copy_file("a", "c", recursive=True)
    await sandbox.rename_file("c/b/f", "c/b/g")
    await sandbox.move_file("c/b/g", "h")
    assert await sandbox.exists("h")
    assert not await sandbox.path_exists("c/b/g")
    await sandbox.set_permissions("h", 0o600)
    assert (await sandbox.stat("h")).permissions.endswith("rw-------")
    await sandbox.delete_file("a", recursive=True)
    assert not await sandbox.exists("a")
    with pytest.raises(errors.FileExistsError):
        await sandbox.mkdir("c")


@pytest.mark.container
async def test_names_of_all_kinds_are_safe(sandbox: atoll.Sandbox) -> None:
    for name in ("with space", "quote'\"", "line\nbreak", "-rf", "*", "ü" * 100, "x" * 255, "#?&%"):
        await sandbox.write_file(f"/workspace/n/{name}", name)
        assert (await sandbox.read_file(f"/workspace/n/{name}")).content == name
    with pytest.raises(errors.NameTooLongError):
        await sandbox.write_file("/workspace/" + "x" * 256, "")
    assert (await sandbox.list_files("/workspace/n")).count == 8


@pytest.mark.container
async def test_folders_travel_as_one_stream(
    sandbox: atoll.Sandbox, tmp_path_factory: pytest.TempPathFactory
) -> None:
    here = tmp_path_factory.mktemp("here")
    (here / "sub").mkdir()
    (here / "sub" / "x.sh").write_bytes(b"#!/bin/sh\necho ran\n")
    (here / "sub" / "x.sh").chmod(0o755)
    (here / "link").symlink_to("sub/x.sh")
    (here / "empty").mkdir()
    sent: list[int] = []
    await sandbox.upload(here, "/workspace/up", progress=sent.append)
    assert (await sandbox.exec(["/workspace/up/link"])).stdout == "ran\n"
    back = tmp_path_factory.mktemp("there") / "copy"
    await sandbox.download("/workspace/up", back)
    assert (back / "link").readlink().as_posix() == "sub/x.sh"
    assert (back / "sub" / "x.sh").stat().st_mode & 0o111
    assert (back / "empty").is_dir()
    assert sent == sorted(sent)
    one = tmp_path_factory.mktemp("one") / "f"
    await sandbox.download("/workspace/up/sub/x.sh", one)
    assert one.read_bytes() == b"#!/bin/sh\necho ran\n"


@pytest.mark.container
async def test_search_find_and_replace(sandbox: atoll.Sandbox) -> None:
    await sandbox.write_file("s/a.py", "import os\nprint('old')\n")
    await sandbox.write_file("s/b.txt", "old\n")
    assert (await sandbox.search_files("s", "*.py")).paths == ["/workspace/s/a.py"]
    found = (await sandbox.find_in_files("s", "old", glob="*.py")).matches
    assert [(match.line, match.column) for match in found] == [(2, 7)]
    replaced = await sandbox.replace_in_files(["s/a.py", "s/b.txt"], "old", "new")
    assert sum(replaced.replaced.values()) == 2
    assert (await sandbox.read_file("s/b.txt")).content == "new\n"
