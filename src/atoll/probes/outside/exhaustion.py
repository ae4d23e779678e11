"""19: what one sandbox uses up is its own: its neighbours and the API answer as fast as before."""

import statistics
import time
from collections.abc import Callable, Mapping

from atoll.errors import SandboxError
from atoll.probes.box import Box
from atoll.probes.site import Site

ATTACKS: Mapping[str, str] = {
    "processes": ":(){ :|:& };:; sleep 30",
    "busy loops": "for i in $(seq 64); do while :; do :; done & done; sleep 30",
    "memory": "tail /dev/zero; tail /dev/zero; tail /dev/zero; sleep 30",
    "disk": "while :; do cat /dev/zero >/tmp/f$RANDOM$$ 2>/dev/null || sleep 1; done",
    "inodes": "mkdir /tmp/n; cd /tmp/n; i=0; while :; do : >$i; i=$((i+1)); done",
    "descriptors": "for i in $(seq 200); do sleep 30 </dev/zero & done; sleep 30",
    "log": "yes 'a line of a log that has no end'",
}
_CALLS = 8
_USUAL = 0.75
_WORST = 5.0
_SIZE = {"vcpu": 0.5, "memoryMib": 192, "diskMb": 200}


def neighbours(site: Site, attacks: Mapping[str, str] = ATTACKS) -> list[str]:
    """19: during each attack a neighbour and the engine answer in the usual time."""
    neighbour = site.box()
    found = []
    for name, script in attacks.items():
        attacker = site.box(instanceType=_SIZE)
        found += [f"{name}: {what}" for what in during(attacker, script, neighbour)]
        attacker.told("DELETE")
    return found


def during(attacker: Box, script: str, neighbour: Box) -> list[str]:
    """Return what became slow while *attacker* runs *script*; the median of calls counts."""
    attacker.told("POST", "/processes", json={"command": script, "processId": "attack"})
    found = []
    asked: dict[str, Callable[[], object]] = {
        "commands of the neighbour": lambda: neighbour.run("true"),
        "files of the neighbour": lambda: neighbour.write("/tmp/file", b"x"),
        "the engine": lambda: neighbour.client.get("/v2/version").raise_for_status(),
        "looking at the attacker": lambda: attacker.told("GET"),
    }
    for name, call in asked.items():
        try:
            took = [_timed(call) for _ in range(_CALLS)]
        except SandboxError as error:
            found.append(f"{name} failed: {error.code}")
            continue
        if statistics.median(took) > _USUAL or max(took) > _WORST:
            found.append(f"{name}: {statistics.median(took):.1f} s, at worst {max(took):.1f} s")
    return found


def _timed(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began
