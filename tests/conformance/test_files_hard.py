"""Cases F04 to F09: large directories, rights, links, full and read-only places."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

import atoll
from atoll import errors

MIB = 1 << 20


@pytest.mark.beyond_bwrap("users inside")
@pytest.mark.container
async def test_f04_a_foreign_owner_is_a_number(sandbox: atoll.Sandbox) -> None:
    await sandbox.exec(["sh", "-c", "touch f; chown 54321:54322 f"])
    found = await sandbox.stat("f")
    assert (found.owner, found.group) == ("54321", "54322")
    listed = (await sandbox.list_files("/workspace")).files[0]
    assert (listed.owner, listed.group) == ("54321", "54322")


@pytest.mark.container
async def test_f04_a_loop_of_links_is_cut(sandbox: atoll.Sandbox) -> None:
    await sandbox.exec(["sh", "-c", "mkdir -p l/a; ln -s .. l/a/up; ln -s self l/self"])
    found = await sandbox.list_files("l", recursive=True)
    assert [entry.relative_path for entry in found.files] == ["a", "a/up", "self"]
    with pytest.raises(errors.TooManyLinksError) as caught:
        await sandbox.read_file("l/self")
    assert caught.value.context["path"] == "/workspace/l/self"
    assert (await sandbox.search_files("l", "*")).paths == [
        "/workspace/l/a", "/workspace/l/a/up", "/workspace/l/self",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.container
@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [20_000, 100_000])
async def test_f04_large_directories_page_completely(sandbox: atoll.Sandbox, count: int) -> None:
    await sandbox.exec(["sh", "-c", f"mkdir p; cd p; seq {count} | xargs touch"], timeout=120)
    seen, cursor = 0, None
    while True:
        page = await sandbox.list_files("p", cursor=cursor, limit=5_000)
        assert len(page.files) <= 5_000
        seen += page.count
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == count
    assert (await sandbox.search_files("p", "*", limit=10)).truncated


@pytest.mark.beyond_bwrap("users inside")
@pytest.mark.container
async def test_f05_the_rights_are_those_of_the_sessions_user(sandbox: atoll.Sandbox) -> None:
    await sandbox.exec(["sh", "-c", "echo secret > s; chmod 600 s; chmod 711 /workspace"])
    session = await sandbox.create_session(user="1000:1000", cwd="/tmp")
    for attempt in (
        lambda: session.read_file("/workspace/s"),
        lambda: session.write_file("/workspace/s", "x"),
        lambda: session.write_file("/workspace/new", "x"),
        lambda: session.write_file("/root/new", "x"),
        lambda: session.delete_file("/workspace/s"),
        lambda: session.read_file("/etc/shadow"),
        lambda: session.set_permissions("/workspace/s", 0o777),
        lambda: session.rename_file("/workspace/s", "/tmp/s"),
        lambda: session.upload(__file__, "/workspace/up"),
        lambda: session.list_files("/root"),
    ):
        with pytest.raises(errors.PermissionDeniedError) as caught:
            await attempt()
        assert caught.value.context["path"].startswith("/")
    await session.write_file("mine", "x")
    assert (await sandbox.stat("/tmp/mine")).owner == "1000"
    await sandbox.exec(["ln", "-s", "/workspace/s", "/tmp/to-s"])
    with pytest.raises(errors.PermissionDeniedError):
        await session.read_file("to-s")


async def test_f05_links_are_followed_inside_only(sandbox: atoll.Sandbox) -> None:
    await sandbox.exec(["sh", "-c", "ln -s /etc/passwd x; ln -s ../../../../../etc/passwd y"])
    inside = (await sandbox.exec(["cat", "/etc/passwd"])).stdout
    assert (await sandbox.read_file("x")).content == inside
    assert (await sandbox.read_file("y")).content == inside
    assert (await sandbox.stat("x")).type == "symlink"
    await sandbox.delete_file("x")
    assert await sandbox.exists("/etc/passwd")


@pytest.mark.beyond_bwrap("users inside")
@pytest.mark.container
async def test_f06_a_mode_of_nothing_is_typed(sandbox: atoll.Sandbox) -> None:
    await sandbox.write_file("/tmp/none", "x", mode=0)
    await sandbox.set_permissions("/tmp/none", owner=1000)
    session = await sandbox.create_session(user="1000")
    with pytest.raises(errors.PermissionDeniedError) as caught:
        await session.read_file("/tmp/none")
    assert caught.value.context["path"] == "/tmp/none"
    assert isinstance(caught.value, PermissionError)


@pytest.mark.container
async def test_f06_a_read_only_place_is_typed_with_its_path(sandbox: atoll.Sandbox) -> None:
    with pytest.raises(errors.ReadOnlyError) as caught:
        await sandbox.write_file("/sys/x", "x")
    assert caught.value.context["path"] == "/sys/x"


def pieces(count: int) -> AsyncIterator[bytes]:
    async def content() -> AsyncIterator[bytes]:
        for _ in range(count):
            yield bytes(MIB)

    return content()


@pytest.mark.beyond_bwrap("disk")
@pytest.mark.beyond_pods("limit of disk")
@pytest.mark.container
async def test_f06_the_end_of_the_disk_is_typed_and_leaves_the_old_file(
    url: str, sandbox_id: str
) -> None:
    async with atoll.connect(url) as env:
        size = atoll.CustomInstance(vcpu=1, memory_mib=256, disk_mb=64)
        sandbox = atoll.get_sandbox(env.Sandbox, sandbox_id, instance_type=size)
        try:
            await sandbox.write_file("f", "old")
            for append in (False, True):
                with pytest.raises(errors.SandboxError) as caught:
                    await sandbox.write_file("f", pieces(200), append=append)
                assert isinstance(caught.value, errors.DiskQuotaExceededError | errors.NoSpaceError)
                assert caught.value.context["path"] == "/workspace/f"
            assert (await sandbox.read_file("f")).content == "old"
            await sandbox.write_file("after", "x")
        finally:
            await sandbox.destroy()


@pytest.mark.container
async def test_f06_the_end_of_memory_is_typed(sandbox: atoll.Sandbox) -> None:
    with pytest.raises(errors.NoSpaceError) as caught:
        await sandbox.write_file("/dev/shm/f", pieces(600))
    assert caught.value.context["path"] == "/dev/shm/f"
    assert (await sandbox.exec("ls /dev/shm; echo alive")).stdout == "alive\n"


@pytest.mark.slow
@pytest.mark.container
@pytest.mark.timeout(300)
async def test_f09_a_large_tree_is_deleted_about_as_fast_as_by_rm(sandbox: atoll.Sandbox) -> None:
    script = (
        "mkdir {0}; cd {0}; for d in $(seq 300); do mkdir $d; cd $d; seq 100 | xargs touch;"
        " cd ..; done"
    )
    took = []
    for name in ("one", "two"):
        await sandbox.exec(["sh", "-c", script.format(name)], timeout=200)
        began = time.monotonic()
        if name == "one":
            await sandbox.exec(["rm", "-rf", name])
        else:
            await sandbox.delete_file(name, recursive=True)
        took.append(time.monotonic() - began)
    assert not await sandbox.exists("two")
    assert took[1] < 10 * took[0] + 1, took


async def test_many_calls_at_once_all_succeed(sandbox: atoll.Sandbox) -> None:
    async def one(number: int) -> str:
        await sandbox.write_file(f"m/{number}", str(number))
        return str((await sandbox.read_file(f"m/{number}")).content)

    assert await asyncio.gather(*map(one, range(50))) == [str(number) for number in range(50)]
