"""Cases F02 to F06 by every client: the same bytes, links, rights and errors, whoever asks."""

import pytest

from conformance.clients import Client, Refusal

pytestmark = [pytest.mark.container, pytest.mark.clients("sync", "http", "cli")]

EVERY_BYTE = bytes(range(256)) * 3


async def test_f02_every_byte_value_comes_back(box: Client) -> None:
    await box.write("/workspace/bytes", EVERY_BYTE)
    assert await box.read("/workspace/bytes") == EVERY_BYTE
    await box.write("/workspace/nothing", b"")
    assert await box.read("/workspace/nothing") == b""


async def test_f04_what_is_missing_is_typed_with_its_path(box: Client) -> None:
    assert await box.refusal("/no/such") == Refusal("FILE_NOT_FOUND", "/no/such")


async def test_f05_links_lead_to_what_they_mean_inside(box: Client) -> None:
    await box.exec(
        ["sh", "-c", "ln -s /etc/passwd x; ln -s ../../../../etc/passwd y; ln -s /tmp/n z"]
    )
    inside = (await box.exec(["cat", "/etc/passwd"])).stdout
    assert inside
    for name in ("x", "y"):
        assert await box.read(f"/workspace/{name}") == inside
    await box.write("/workspace/z", b"through")
    assert (await box.exec(["cat", "/tmp/n"])).stdout == b"through"


SWAP = """
cd /workspace; mkdir -p one two; ln -sfn two p
for n in 1 2; do
  (while [ ! -e /tmp/stop ]; do ln -sfn one l$n; mv -T l$n p; ln -sfn two l$n; mv -T l$n p; done) &
done >/dev/null 2>&1
"""


async def test_f05_a_parent_that_is_swapped_during_a_write_gets_all_or_nothing(box: Client) -> None:
    """Two processes race; the file is in one of the two places, whole, and no temporary in any."""
    await box.exec(["bash", "-c", SWAP])
    for turn in range(3):
        await box.write("/workspace/p/f", bytes([turn]) * 300_000)
    await box.exec(["touch", "/tmp/stop"])
    found = (
        await box.exec(["bash", "-c", "cd /workspace; find one two -type f -printf '%s %f\\n'"])
    ).text
    assert set(found.splitlines()) == {"300000 f"}


async def test_f06_a_read_only_place_is_typed_with_its_path(box: Client) -> None:
    assert await box.refusal("/sys/x", b"x") == Refusal("READ_ONLY", "/sys/x")


@pytest.mark.clients("sync", "http")  # `atoll cp` copies into it
async def test_f06_a_directory_is_no_file(box: Client) -> None:
    assert await box.refusal("/workspace", b"x") == Refusal("IS_DIRECTORY", "/workspace")
