"""Probes from outside: each holds on an engine, and fails where what it is about was taken away."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

import atoll
from atoll.probes import calls
from atoll.probes import site as sites
from atoll.probes.box import Box
from atoll.probes.outside import agents, buckets, callers, copies, exhaustion, files, previews
from atoll.probes.outside.peers import PEERS
from atoll.probes.site import NAMESPACE, Site
from atoll.wire import ops

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def running() -> Iterator[Site]:
    with sites.opened("container") as opened:
        yield opened


@pytest.fixture
def site(running: Site) -> Iterator[Site]:
    yield running
    running.clear()


QUICK = [
    files.target_swap, files.archive_members, files.image_unchanged, files.read_only_volumes,
    files.limit_of_a_volume, files.links, copies.shared_state, copies.forks, callers.tenants, callers.against_the_host,
    previews.previews,
]  # fmt: skip


@pytest.mark.parametrize("probe", QUICK, ids=lambda probe: probe.__name__)
def test_a_probe_finds_nothing(site: Site, probe: Any) -> None:
    assert probe(site) == []


LONGER = [
    callers.injection, exhaustion.neighbours, agents.hostile_agents, buckets.boundary,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("probe", LONGER)
def test_a_probe_that_takes_longer_finds_nothing(site: Site, probe: Any) -> None:
    assert probe(site) == []


def test_agents_that_were_taken_over(site: Site) -> None:
    """A few of them; all of them in the long run."""
    some = {name: PEERS[name] for name in ("wrong_answer", "announced", "many_answers")}
    assert agents.hostile_agents(site, some) == []


@pytest.fixture
def strict() -> Iterator[Site]:
    """A site whose sandboxes are of level gvisor."""
    if shutil.which("runsc") is None:
        pytest.skip("runsc is not installed")
    with sites.opened("gvisor") as opened:
        yield opened


def test_forks_and_agents_at_a_level_where_agents_have_addresses(strict: Site) -> None:
    assert copies.forks(strict) == []
    assert agents.hostile_agents(strict, {"many_answers": PEERS["many_answers"]}) == []


@pytest.mark.slow
def test_a_key_that_opens_every_namespace_is_noticed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "caller", lambda *_: Site(site.hello, site.state_dir).client)
    assert any("where there is one" in found for found in callers.tenants(site))


def test_marks_in_a_volume_that_both_write_are_noticed(site: Site) -> None:
    place = f"/v2/namespaces/{NAMESPACE}/volumes"
    assert site.client.post(place, json={"name": "shared", "shared": True}).is_success
    found = copies.shared_state(site, volumes={"/data": "shared"})
    assert found == ["/data is shared"]


def test_an_image_that_changes_is_noticed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    same = site.box()
    monkeypatch.setattr(site, "box", lambda: same)
    assert "files of the image changed" in files.image_unchanged(site)


def test_a_volume_that_is_not_read_only_is_noticed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"/v2/namespaces/{NAMESPACE}/volumes"
    assert site.client.post(place, json={"name": "kept"}).is_success

    def told(answer: httpx2.Response) -> Any:
        return answer.json()  # that it is there already, with other options

    monkeypatch.setattr(files, "result", told)
    assert "the volume has changed" in files.read_only_volumes(site)


@pytest.mark.slow
def test_a_larger_volume_is_noticed(site: Site) -> None:
    (found,) = files.limit_of_a_volume(site, size=200_000_000)
    assert found.startswith("wrote ")


def test_a_folder_of_the_host_that_is_inside_is_noticed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weakened run of links: inside, a volume has the name that its folder has on the host."""
    place = f"/v2/namespaces/{NAMESPACE}/volumes"
    assert site.client.post(place, json={"name": "out"}).is_success
    assert site.client.put(f"{place}/out/files", params={"path": "marker"}, content=b"").is_success
    (marker,) = site.state_dir.rglob("marker")
    marker.unlink()
    box, folder = site.box, str(marker.parent)
    monkeypatch.setattr(tempfile, "TemporaryDirectory", lambda **_: nullcontext(folder))
    monkeypatch.setattr(site, "box", lambda: box(volumes={folder: "out"}))
    found = files.links(site)
    assert {"read through absolute", "a file of the host was changed"} <= set(found)


def test_a_mount_of_the_whole_bucket_is_noticed(site: Site) -> None:
    """The weakened run of buckets."""
    found = buckets.boundary(site, prefix="")
    assert {"read theirs/secret", "listed theirs", "wrote theirs/written"} <= set(found)


def test_an_archive_that_gets_out_is_noticed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def out(box: Box, *_: Any) -> None:
        box.sh("touch /etc/out")

    monkeypatch.setattr(files, "_upload", out)
    assert any(found.startswith("changed") for found in files.archive_members(site))
    assert "upload" in files.target_swap(site)


def test_forks_that_are_one_are_noticed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    one = site.box()
    told = one.told
    forks = {"forks": [{"id": one.id}, {"id": one.id}]}
    monkeypatch.setattr(
        one, "told", lambda m, p="", **c: forks if p == "/fork" else told(m, p, **c)
    )
    monkeypatch.setattr(site, "box", lambda: one)
    assert {"machine id is the same", "host name is the same"} <= set(copies.forks(site))


@pytest.mark.slow
def test_an_attack_on_oneself_is_noticed(site: Site) -> None:
    box = site.box(instanceType={"vcpu": 0.1, "memoryMib": 128, "diskMb": 100})
    assert exhaustion.during(box, exhaustion.ATTACKS["busy loops"], box)


def test_a_shell_that_runs_what_it_is_given_is_noticed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(request: httpx2.Request) -> None:
        for text in request.url.params.values():
            subprocess.run(["sh", "-c", text.replace("\0", "")], capture_output=True)

    monkeypatch.setattr(calls, "TABLE", (ops.STAT,))
    site.client.event_hooks = {"request": [run]}
    try:
        found = callers.injection(site)
    finally:
        site.client.event_hooks = {}
    assert "run on the host: mark-stat" in found


def test_a_preview_that_anybody_reaches_is_noticed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    get, first = previews._Visitor.get, []

    def anybody(visitor: Any, host: str) -> str:
        first.append(host)
        return get(visitor, first[0])

    monkeypatch.setattr(previews._Visitor, "get", anybody)
    found = previews.previews(site)
    assert {"reached by the token of A at B", "reached by no token"} <= set(found)


def test_an_engine_that_takes_any_value_is_noticed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers, "_send", lambda *_: (200, ""))
    found = callers.against_the_host(site)
    assert "image '/root': taken" in found
    assert "a folder of the host: taken" in found


_TRUSTING = """
from atoll.engine.link import checks, losses

def trusting(detail):
    raise ValueError(detail)

checks.check = lambda frame: None
losses.improper = trusting
"""


@pytest.mark.slow
@pytest.mark.parametrize("level", ["container", "gvisor"])
def test_an_engine_that_trusts_its_agents_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """The weakened run of hostile agents: what they answer is not looked at."""
    if level == "gvisor" and shutil.which("runsc") is None:
        pytest.skip("runsc is not installed")
    (tmp_path / "sitecustomize.py").write_text(_TRUSTING)
    path = os.pathsep.join([str(tmp_path), str(Path(atoll.__file__).parents[1])])
    monkeypatch.setenv("PYTHONPATH", path)
    with sites.opened(level) as opened:
        found = agents.hostile_agents(opened, {"wrong_answer": PEERS["wrong_answer"]})
    assert any(one.startswith("wrong_answer: stat: an error without a type") for one in found)


def test_a_fault_of_the_engine_and_a_silence_are_noticed() -> None:
    fault = httpx2.Response(500, json={"code": "INTERNAL_ERROR"})
    assert agents._judged(ops.STAT, fault, fault.content) == "INTERNAL_ERROR"
    page = httpx2.Response(502, text="<html>")
    assert agents._judged(ops.STAT, page, page.content).startswith("an error without a type")


@pytest.mark.parametrize(
    ("quiet", "took", "noticed"),
    [(0.01, 0.9, False), (0.01, 1.2, True), (0.12, 1.7, False), (0.12, 2.3, True)],
)
def test_a_neighbour_is_slow_by_what_it_takes_when_all_is_quiet(
    monkeypatch: pytest.MonkeyPatch, quiet: float, took: float, noticed: bool
) -> None:
    """A command at level gvisor takes ten times as long without anybody's doing."""
    running: Any = SimpleNamespace(pid=os.getpid())
    watch = agents._Watch(running, running, quiet)
    monkeypatch.setattr(watch, "_took", [took] * 3)
    assert (
        any("of a neighbour" in one for one in watch.found(agents._memory(os.getpid()))) == noticed
    )
