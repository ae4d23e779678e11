"""What probes find at a level without it being a way out: it reaches nothing but the sandbox. Pure.

Each is told to users as a row of ``docs/isolation.md`` or in SECURITY.md.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

_KNOWN: Final[Mapping[str, Mapping[str, str]]] = {
    "gvisor": {
        r"read (/proc/\d+/(environ|maps|smaps|auxv)|its environment)": "gVisor's /proc asks for no right to trace",
        r"follow (/proc/\d+/(fd/\d+|ns/pid)|its descriptors)": "as above",
        r"/sys/fs/cgroup is there": "an empty folder of gVisor's own kernel",
        r"syslog": "the log of gVisor's own kernel, made up",
        r"(open )?/dev/(fuse|net|net/tun)": "of gVisor's own kernel",
        r"io_(setup|destroy|submit|getevents)|huge pages of mmap": "counted by gVisor's own kernel",
        r"socket filter \d+": "run by gVisor's own kernel",
        r"host ids": "no id inside is one of the host's: it has none",
        r"new privileges|one filter only": "gVisor's /proc/self/status has no such lines",
    },
}

_NOT_TRIED: Final[Mapping[str, Mapping[str, str]]] = {
    "gvisor": {"signals": "a signal to pid 1 ends this sandbox, and no other"},
}


def unknown(level: str, seen: Sequence[str]) -> list[str]:
    """Return what of *seen* is no known difference of the level."""
    patterns = _KNOWN.get(level, {})
    return [what for what in seen if not any(re.fullmatch(known, what) for known in patterns)]


def not_tried(level: str, probe: str) -> str | None:
    """Return why the probe of that name is not run at the level, None where it is."""
    return _NOT_TRIED.get(level, {}).get(probe)
