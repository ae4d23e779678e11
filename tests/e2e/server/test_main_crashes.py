"""The engine dies at every point there is, under load, and the next one finds its way.

Workers own two sandboxes each and write down what the engine acknowledged: the content of files, and
lines that commands appended. A call that was under way at a crash has two possible outcomes, both of
which are right; nothing else is. Each campaign is seeded; a failure names round and point.
"""

import gc
import json
import os
import random
import re
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from atoll.engine.lifecycle.faults import POINTS
from e2e.hosts import SANDBOXES, Host, reboot
from integration.server.engines import EngineProcess

pytestmark = [
    pytest.mark.e2e,
    # The HTTP library leaves the socket of a connection that is refused to the collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

WORKERS = 3
REACHED = 4.0
"""Seconds of load in which the point is to be reached; then the engine is killed where it is."""

LOOK = """
import json, os
os.chdir("/workspace")
names = [name for name in os.listdir() if name in "abc"]
print(json.dumps([
    {name: open(name).read() for name in names},
    open("lines").read().split() if os.path.exists("lines") else [],
]))
"""


class InterruptedError(Exception):
    """The engine died during a call."""


@dataclass(frozen=True)
class World:
    """One state a sandbox may rightly be in."""

    files: dict[str, str] = field(default_factory=dict)
    lines: tuple[str, ...] = ()  # whose commands were acknowledged
    doubtful: frozenset[str] = frozenset()  # whose commands may have run

    def fits(self, files: dict[str, str], lines: list[str]) -> bool:
        sure = [line for line in lines if line in self.lines]
        rest = set(lines) - set(self.lines)
        once = len(set(lines)) == len(lines)
        return once and files == self.files and sure == [*self.lines] and rest <= self.doubtful


@dataclass
class Box:
    url: str
    mode: str
    worlds: list[World] = field(default_factory=lambda: [World()])


class Worker:
    """Uses its sandboxes one call after the other until the engine dies."""

    def __init__(self, number: int, seed: int) -> None:
        self.boxes = [Box(f"{SANDBOXES}/w{number}-{mode}", mode) for mode in ("stop", "freeze")]
        self.failure: BaseException | None = None
        self._chance = random.Random(f"{seed}/{number}")
        self._serial = 0

    def work(self, engine: EngineProcess) -> None:
        try:
            with engine.client() as client, suppress(InterruptedError):
                while True:
                    self._step(client, self._chance.choice(self.boxes))
        except BaseException as failure:
            self.failure = failure

    def _step(self, client: httpx2.Client, box: Box) -> None:
        self._serial += 1
        steps = {self._write: 4, self._append: 6, self._sleep: 3, self._destroy: 1, self._set: 1}
        self._chance.choices([*steps], [*steps.values()])[0](client, box)

    def _write(self, client: httpx2.Client, box: Box) -> None:
        name, text = self._chance.choice("abc"), f"{self._serial}" * 100
        written = [replace(world, files={**world.files, name: text}) for world in box.worlds]
        box.worlds += written
        _call(client, "PUT", f"{box.url}/files?path=/workspace/{name}", content=text.encode())
        box.worlds = written

    def _append(self, client: httpx2.Client, box: Box) -> None:
        line = str(self._serial)
        before = box.worlds
        box.worlds = [replace(w, doubtful=w.doubtful | {line}) for w in before]
        script = f"echo {line} >> /workspace/lines; sync"
        told = _call(client, "POST", box.url + "/exec", json={"command": ["sh", "-c", script]})
        assert told["exitCode"] == 0, told
        box.worlds = [replace(world, lines=(*world.lines, line)) for world in before]

    def _sleep(self, client: httpx2.Client, box: Box) -> None:
        _call(client, "PUT", box.url, json={"sleepMode": box.mode})
        _call(client, "POST", box.url + "/sleep")

    def _destroy(self, client: httpx2.Client, box: Box) -> None:
        box.worlds += [World()]
        _call(client, "DELETE", box.url)
        box.worlds = [World()]

    def _set(self, client: httpx2.Client, box: Box) -> None:
        _call(client, "PUT", box.url, json={"labels": {"serial": str(self._serial)}})


def _call(client: httpx2.Client, method: str, url: str, **body: Any) -> Any:
    """Return the answer; a refusal that says so is tried again."""
    while True:
        try:
            answer = client.request(method, url, **body)
        except httpx2.TransportError as error:
            raise InterruptedError from error
        told = answer.json()
        if answer.is_success:
            return told
        assert answer.status_code == 503, told
        time.sleep(0.1)


class Campaign:
    """Rounds of load, death and inspection on one host."""

    def __init__(self, host: Host, seed: int) -> None:
        self.host = host
        self.seed = seed
        self.workers = [Worker(number, seed) for number in range(WORKERS)]
        self.reached: Counter[str] = Counter()
        self._chance = random.Random(seed)

    def round(self, point: str) -> None:
        passage = self._chance.choice((1, 1, 2, 3))
        engine = self.host.start(
            ATOLL_POOL_TARGET="1", ATOLL_FAULTS_POINT=point, ATOLL_FAULTS_PASSAGE=str(passage)
        )
        threads = [threading.Thread(target=w.work, args=(engine,)) for w in self.workers]
        for thread in threads:
            thread.start()
        with suppress(TimeoutError, Exception):
            engine.process.wait(REACHED)
            self.reached[point] += 1
        engine.end(signal.SIGKILL)
        for thread in threads:
            thread.join()
        for worker in self.workers:
            if worker.failure:
                raise worker.failure

    def inspect(self) -> None:
        engine = self.host.start()
        found = names_of(self.host, engine)
        strangers = found.keys() - owned(self.host) - layers(self.host)
        assert not strangers, {name: found[name] for name in strangers}
        assert {path.parent.name for path in self.host.layers()} <= layers(self.host)
        with engine.client() as client:
            for worker in self.workers:
                for box in worker.boxes:
                    box.worlds = [seen(client, box)]
        assert engine.end() == 0

    def end(self) -> None:
        engine = self.host.start()
        with engine.client() as client:
            for info in client.get(SANDBOXES).json()["sandboxes"]:
                client.delete(f"{SANDBOXES}/{info['id']}")
        assert names_of(self.host, engine) == {}
        assert self.host.layers() == []
        assert self.host.left(engine.hello["engineId"]) == []


def seen(client: httpx2.Client, box: Box) -> World:
    """Look inside, which shows that it can be used; return what is there if it is right."""
    if client.get(box.url).status_code == 404:
        files, lines = {}, list[str]()
    else:
        command = {"command": ["python3", "-c", LOOK]}
        told = _call(client, "POST", box.url + "/exec", json=command)
        assert told["exitCode"] == 0, told
        files, lines = json.loads(told["stdout"])
    assert any(world.fits(files, lines) for world in box.worlds), (box, files, lines)
    return World(files, tuple(lines))


def names_of(host: Host, engine: EngineProcess) -> dict[str, list[str]]:
    """Every name of a start that anything on this host has → where it was found."""
    id = engine.hello["engineId"]
    found = [*host.left(id)]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes().decode(errors="replace"))
    names: dict[str, list[str]] = {}
    for line in found:
        for name in re.findall(rf"{id}-[0-9a-f]{{12}}", line):
            names.setdefault(name, []).append(line)
    return names


def owned(host: Host) -> set[str]:
    return _column(host, "SELECT host_ref FROM sandboxes UNION SELECT host_ref FROM warm")


def layers(host: Host) -> set[str]:
    return _column(host, "SELECT layer_id FROM sandboxes UNION SELECT layer_id FROM warm")


def _column(host: Host, query: str) -> set[str]:
    with closing(sqlite3.connect(host.state_dir / "atoll.db")) as store:
        return {row[0] for row in store.execute(query)}


@pytest.fixture
def host() -> Iterator[Host]:
    if os.geteuid():
        pytest.skip("needs root")
    found = Host()
    yield found
    found.close()


def fight(campaign: Campaign, points: list[str]) -> None:
    for number, point in enumerate(points):
        try:
            campaign.round(point)
            campaign.inspect()
        except BaseException as error:
            error.add_note(f"seed {campaign.seed}, round {number}, point {point}")
            log = (campaign.host.state_dir / "test.log").read_text().splitlines()
            error.add_note("\n".join([line for line in log if '"error"' in line][-3:] + log[-5:]))
            raise
        gc.collect()  # here, where what it says of the HTTP library's sockets is ignored
    campaign.end()


@pytest.mark.timeout(180)
def test_some_deaths_lose_nothing_and_leave_nothing(host: Host) -> None:
    campaign = Campaign(host, seed=6)
    fight(
        campaign,
        ["start.container", "exec.running", "sleep.shut_down", "destroy.recorded"],
    )  # fmt: skip
    assert sum(campaign.reached.values()) >= 3, campaign.reached


@pytest.mark.slow
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("seed", range(4))
def test_two_hundred_deaths_lose_nothing_and_leave_nothing(host: Host, seed: int) -> None:
    """Fifty for each seed, spread evenly over all points."""
    campaign = Campaign(host, seed)
    order = random.Random(seed)
    points: list[str] = []
    while len(points) < 50:
        points += order.sample(POINTS, len(POINTS))
    fight(campaign, points[:50])
    assert sum(campaign.reached.values()) >= 40, campaign.reached


@pytest.mark.timeout(180)
def test_after_a_reboot_files_are_there_and_nothing_else(host: Host) -> None:
    """All runtime state is gone at once: containers, mounts, namespaces, what is in /run."""
    campaign = Campaign(host, seed=1)
    engine = host.start(ATOLL_POOL_TARGET="1")
    workers = [threading.Thread(target=w.work, args=(engine,)) for w in campaign.workers]
    for thread in workers:
        thread.start()
    time.sleep(3)
    engine.end(signal.SIGKILL)
    for thread in workers:
        thread.join()
    reboot(host, engine.hello["engineId"])
    campaign.inspect()
    campaign.end()
