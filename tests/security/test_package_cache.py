"""22: what one sandbox leaves in a package cache is never what another one installs.

Each attack runs twice: as it is, and where the caller weakened it, so that it is known to work.
"""

from collections.abc import Iterator

import httpx2
import pytest

from e2e.hosts import SANDBOXES, Host, run

pytestmark = pytest.mark.e2e

A, B = f"{SANDBOXES}/a", f"{SANDBOXES}/b"
VOLUMES = "/v2/namespaces/N/volumes"
CACHE = "/var/cache/packages"

WHEEL = """
import base64, hashlib, os, subprocess, sys, tempfile, zipfile
body = f"print({sys.argv[1]!r})\\n"
files = {"tool.py": body, "tool-1.dist-info/METADATA": "Metadata-Version: 2.1\\nName: tool\\nVersion: 1\\n",
         "tool-1.dist-info/WHEEL": "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"}
files["tool-1.dist-info/RECORD"] = "".join(f"{name},,\\n" for name in [*files, "tool-1.dist-info/RECORD"])
folder = os.environ["PIP_FIND_LINKS"]
os.makedirs(folder, exist_ok=True)
with zipfile.ZipFile(folder + "/tool-1-py3-none-any.whl", "w") as wheel:
    for name, text in files.items():
        wheel.writestr(name, text)
"""
"""A wheel of a package that says who made it, where pip looks first."""

INSTALL = (
    "python3 -m pip install -q --no-index --target /tmp/t tool"
    " 2>/dev/null; PYTHONPATH=/tmp/t python3 -m tool 2>/dev/null || echo none; rm -rf /tmp/t"
)


@pytest.fixture
def client(host: Host) -> Iterator[httpx2.Client]:
    with host.start().client() as found:
        yield found


def sh(client: httpx2.Client, url: str, script: str, *words: str) -> str:
    told = run(client, url, "sh", "-c", script, "sh", *words)
    assert told["exitCode"] == 0, told
    return str(told["stdout"])


def poison(client: httpx2.Client, url: str, says: str) -> None:
    sh(client, url, 'printf %s "$1" | python3 - "$2"', WHEEL, says)
    assert sh(client, url, INSTALL) == f"{says}\n", "it works where it was made"


def sandboxes(client: httpx2.Client, **options: object) -> None:
    for url in (A, B):
        assert client.put(url, json=options).is_success


def cache(client: httpx2.Client, **how: bool) -> None:
    assert client.post(VOLUMES, json={"name": "c", **how}).is_success


def test_a_poisoned_wheel_is_installed_by_nobody_else_and_not_after_a_sleep(
    client: httpx2.Client,
) -> None:
    cache(client, private=True)
    sandboxes(client, packageCache="c")
    poison(client, A, "poison")
    assert sh(client, B, INSTALL) == "none\n"
    for url in (A, B):
        assert client.post(url + "/stop", json={}).is_success
    assert [sh(client, url, INSTALL) for url in (A, B)] == ["none\n"] * 2


def test_a_poisoned_wheel_is_installed_where_the_cache_is_one_that_both_write(
    client: httpx2.Client,
) -> None:
    """The weakened run: the option refuses such a volume, so it is mounted by hand."""
    cache(client, shared=True)
    env = {"PIP_FIND_LINKS": f"{CACHE}/wheels"}
    sandboxes(client, volumes={CACHE: "c"}, env=env)
    poison(client, A, "poison")
    assert sh(client, B, INSTALL) == "poison\n"


def test_a_volume_that_both_write_is_refused_as_a_cache(client: httpx2.Client) -> None:
    for name, how in (("s", {"shared": True}), ("w", {})):
        assert client.post(VOLUMES, json={"name": name, **how}).is_success
        assert client.put(A, json={"packageCache": name}).is_success
        refused = client.post(A + "/exec", json={"command": ["true"]})
        assert (refused.status_code, refused.json()["code"]) == (400, "VALIDATION_FAILED")


def test_a_cache_changes_by_a_call_of_its_own_only(client: httpx2.Client) -> None:
    """The caller's choice: what it publishes, others install."""
    cache(client, private=True)
    sandboxes(client, packageCache="c")
    poison(client, A, "chosen")
    sh(client, B, "true")
    assert client.post(f"{VOLUMES}/c/publish", json={"sandbox": "a"}).is_success
    assert sh(client, B, INSTALL) == "none\n", "what runs goes on with what it had"
    assert client.post(B + "/stop", json={}).is_success
    assert sh(client, B, INSTALL) == "chosen\n"


def test_another_namespace_cannot_reach_it(client: httpx2.Client) -> None:
    cache(client, private=True)
    other = A.replace("/N/", "/M/")
    assert client.put(other, json={"packageCache": "c"}).is_success
    refused = client.post(other + "/exec", json={"command": ["true"]})
    assert (refused.status_code, refused.json()["code"]) == (404, "VOLUME_NOT_FOUND")
    assert client.delete(other).is_success
