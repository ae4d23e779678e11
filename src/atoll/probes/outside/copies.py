"""22 and 26: sandboxes have nothing writable in common, and copies of one are told apart."""

import ast
from typing import Any

from atoll.probes.box import Box
from atoll.probes.site import Site, canary

_MARK = """
import os
made = []
for line in open("/proc/self/mountinfo"):
    place = line.split()[4]
    try:
        with open(os.path.join(place, {marker!r}), "x"):
            made.append(place)
    except OSError:
        pass
print(made)
"""
_SEEK = """
import os
places = [line.split()[4] for line in open("/proc/self/mountinfo")]
print([place for place in places if os.path.exists(os.path.join(place, {marker!r}))])
"""
_WHO = """
import socket, uuid, random, os
told = {"machine id": open("/etc/machine-id").read(), "host name": socket.gethostname(),
        "uuid4": str(uuid.uuid4()), "urandom": os.urandom(16).hex(), "random": random.random()}
kernels = "/proc/sys/kernel/random/uuid"
if os.path.exists(kernels):  # gVisor has none
    told["uuid of the kernel"] = open(kernels).read()
print(told)
"""


def shared_state(site: Site, **options: Any) -> list[str]:
    """26: a mark that one sandbox leaves in any of its mounts is not in another.

    Args:
        site: where.
        options: of both sandboxes.
    """
    a, b = site.box(**options), site.box(**options)
    marker = canary()
    made = ast.literal_eval(a.python(_MARK.format(marker=marker)))
    if not made:
        return ["no mark could be made"]
    seen = ast.literal_eval(b.python(_SEEK.format(marker=marker)))
    return [f"{place} is shared" for place in seen]


def forks(site: Site) -> list[str]:
    """22: forks of one sandbox say other things of themselves, and keep other sessions."""
    origin = site.box()
    made = origin.told("POST", "/fork", json={"count": 2})["forks"]
    boxes = [origin, *(Box(site.client, origin.namespace, fork["id"]) for fork in made)]
    told = [ast.literal_eval(box.python(_WHO)) for box in boxes]
    found = [f"{what} is the same" for what in told[0] if len({one[what] for one in told}) < 3]
    tokens = {box.told("POST", "/ports", json={"port": 8_000})["url"] for box in boxes}
    return found if len(tokens) == 3 else [*found, "preview tokens are the same"]
