"""Programs that people use, unchanged, through TLS that the gateway opens.

Each has servers of the kind it talks to; all of them are seen by the gateway, request by request.
"""

import io
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.engine.egress.conftest import Node
from e2e.engine.egress.test_gateway import log
from e2e.hosts import SANDBOXES
from e2e.network import sites
from integration.server.engines import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

GIT, PYPI, NPM, APT, ANY = (f"{n}.many.test" for n in ("git", "pypi", "npm", "apt", "any"))


@pytest.fixture(scope="module")
def internet(standing: Node) -> Iterator[Node]:
    """The module's node; its internet has what clients want."""
    with tempfile.TemporaryDirectory() as folder:
        sites.repository(Path(folder), "one.git")
        standing.web.sites |= {
            GIT: sites.git(Path(folder)),
            PYPI: sites.python_index("hello"),
            NPM: sites.npm_registry("hello", f"https://{NPM}"),
            APT: sites.debian_repository("hello"),
        }
        yield standing


@pytest.fixture
def opened(internet: Node, node: Node) -> Node:
    """A node whose sandboxes have all their TLS opened."""
    config = {"egress": {"interceptHttps": True}}
    assert node.client.put("/v2/namespaces/N", json=config).status_code == 200
    return node


def opened_for(node: Node, host: str) -> bool:
    """Tell whether a request in TLS to *host* was seen and let out."""
    return any(
        (entry["protocol"], entry["verdict"], entry["host"]) == ("https", "allowed", host)
        for entry in log(node, "a")
    )


GIT_CLONE = f"""
cd /tmp && git clone -q https://{GIT}/one.git && cd one
git -c user.name=b -c user.email=b@c commit -q --allow-empty -m second
head -c 3000000 /dev/urandom > large && git add large
git -c user.name=b -c user.email=b@c commit -q -m third && git push -q
cd .. && git clone -q https://{GIT}/one.git again && git -C again log --format=%s
"""
REQUESTS = f"""
from pip._vendor import requests
with requests.Session() as session:
    print(session.get("https://{ANY}/a").json()["path"], session.put(
        "https://{ANY}/b", data=b"x" * 100000).json()["method"])
"""
FETCH = f'fetch("https://{ANY}/f").then(r => r.json()).then(j => console.log(j.path))'
PIP = f"""
cd /tmp && pip install -q --root-user-action ignore --index-url https://{PYPI}/simple hello >&2
python3 -m hello
"""
NPM_INSTALL = f"""
mkdir /tmp/n && cd /tmp/n && npm install --silent --registry https://{NPM} hello >&2
node -e 'require("hello")'
"""
APT_INSTALL = f"""
rm -rf /etc/apt/sources.list.d/*; echo "deb [trusted=yes] https://{APT}/ ./" > /etc/apt/sources.list
(apt-get update && apt-get install -y hello) >/tmp/apt 2>&1 || cat /tmp/apt
cat /opt/hello
"""

CLIENTS = {
    "curl": (ANY, f"curl -sS https://{ANY}/c | jq -r .path", ["/c"]),
    "wget": (ANY, f"wget -qO- https://{ANY}/w | jq -r .path", ["/w"]),
    "git": (GIT, GIT_CLONE, ["third", "second", "first"]),
    "pip": (PYPI, PIP, ["hello of the index"]),
    "requests": (ANY, f"python3 -c '{REQUESTS}'", ["/a PUT"]),
    "node": (ANY, f"node -e '{FETCH}'", ["/f"]),
    "npm": (NPM, NPM_INSTALL, ["hello of the registry"]),
    "apt": (APT, APT_INSTALL, ["of the repository"]),
}
"""Host, what is run, and what it prints."""


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_works_unchanged_and_its_requests_are_seen(opened: Node, client: str) -> None:
    host, command, printed = CLIENTS[client]
    assert opened.shell("a", command).splitlines() == printed
    eventually(lambda: opened_for(opened, host))


JAVA = """
import java.net.URI;
import java.net.http.*;
class Get {
    public static void main(String[] given) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(given[0])).build();
        var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        System.out.println(answer.statusCode() + " " + new URI(given[0]).toURL().openStream().read());
    }
}
"""


def java(folder: Path) -> bytes:
    """Return a Java that compiles what it runs, as an archive."""
    if shutil.which("jlink") is None:
        pytest.skip("no jlink here that makes a Java for a sandbox")
    modules = "java.net.http,jdk.compiler,jdk.crypto.ec"
    made = folder / "java"
    subprocess.run(["jlink", "--add-modules", modules, "--output", str(made)], check=True)
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        archive.add(made, "java")
    return data.getvalue()


def test_java_works_with_the_sandboxs_authority(opened: Node, tmp_path: Path) -> None:
    url = f"{SANDBOXES}/a/files"
    archive = opened.client.put(url, params={"path": "/tmp/java.tar"}, content=java(tmp_path))
    assert archive.status_code == 200, archive.text
    opened.client.put(url, params={"path": "/tmp/Get.java"}, content=JAVA.encode())
    assert opened.shell("a", "tar -xf /tmp/java.tar -C /opt").strip() == ""
    run = f"/opt/java/bin/java /tmp/Get.java https://{ANY}/j 2>/tmp/error || cat /tmp/error"
    assert opened.shell("a", run).split() == ["200", str(ord("{"))]
    eventually(lambda: opened_for(opened, ANY))
