"""The table of probes: class, what has to hold, and the function that tries. Pure.

Numbers are those of the classes of attack; what one number says may take several functions.
"""

from typing import NamedTuple


class Probe(NamedTuple):
    """One row. `function` is "module.name" below `atoll.probes.inside` or `atoll.probes.outside`.

    `weakened` says with what it was shown to fail: a probe that cannot fail is worthless.
    """

    number: int
    about: str
    function: str
    weakened: str
    inside: bool = True
    slow: bool = False  # takes minutes: only when asked for

    @property
    def name(self) -> str:
        """What it is called on the command line."""
        return self.function.partition(".")[2].replace("_", "-")


def _outside(number: int, about: str, function: str, weakened: str, *, slow: bool = False) -> Probe:
    return Probe(number, about, function, weakened, inside=False, slow=slow)


_UNFILTERED = "no filter of system calls"
_PRIVILEGED = "commands with the agent's capabilities"
_OPEN = "chains of the packet filter that let all pass"
_OUT = "an upload that writes outside its target"

PROBES: tuple[Probe, ...] = (
    Probe(1, "runtime binary overwrite", "boundary.runtime_binary",
          "an interpreter of the agent that the sandbox owns"),
    Probe(2, "leaked descriptors, cwd", "boundary.descriptors", _PRIVILEGED),
    Probe(3, "masked paths, console", "kernel.masked_paths", "no masked paths"),
    _outside(4, "mount target swap", "files.target_swap", _OUT),
    _outside(5, "archive members", "files.archive_members", _OUT),
    Probe(6, "cgroup escape", "kernel.cgroup_escape", _UNFILTERED),
    Probe(7, "kernel sockets", "kernel.address_families", _UNFILTERED),
    _outside(7, "image unchanged", "files.image_unchanged", "an image that changes"),
    Probe(8, "nested namespaces", "kernel.nested_namespaces", _UNFILTERED),
    Probe(9, "risky system calls", "kernel.risky_calls", _UNFILTERED),
    Probe(9, "tracing the agent", "boundary.agent_is_untouchable", _PRIVILEGED),
    Probe(9, "schedule of the agent", "boundary.schedule_of_the_agent", _PRIVILEGED),
    Probe(9, "signals to the agent", "boundary.signals",
          "an agent that has a handler for a signal"),
    Probe(10, "sockets of the host", "boundary.sockets_of_the_host",
          "a socket of the host mounted inside"),
    Probe(11, "metadata services", "network.metadata", _OPEN),
    _outside(12, "host, neighbours", "network.east_west", _OPEN),
    Probe(12, "spoofing", "network.spoofing", "raw sockets"),
    _outside(13, "DNS as a way out", "network.names_as_a_way_out", _OPEN),
    _outside(14, "ways round a list of hosts", "network.ways_round_a_list", _OPEN),
    Probe(15, "read-only mounts", "boundary.read_only_mounts", _UNFILTERED),
    _outside(15, "read-only volumes", "files.read_only_volumes", "a volume that is not read-only"),
    Probe(16, "secrets of the agent", "boundary.secrets", _PRIVILEGED),
    _outside(17, "boundary of a bucket", "buckets.boundary", "a mount of the whole bucket"),
    _outside(18, "links against files", "files.links", "a folder of the host inside"),
    _outside(19, "exhaustion", "exhaustion.neighbours",
             "an attack on the very sandbox that is timed"),
    _outside(19, "limit of a volume", "files.limit_of_a_volume", "a volume of a larger size"),
    Probe(20, "terminal injection", "kernel.terminal_injection", _UNFILTERED),
    _outside(21, "previews", "previews.previews", "a visitor who always reaches the first preview"),
    _outside(22, "forks told apart", "copies.forks", "two forks that are one sandbox"),
    _outside(23, "helper injection", "callers.injection",
             "a shell of the host that runs each value"),
    _outside(24, "tenant mix-up", "callers.tenants", "a key for every namespace"),
    Probe(25, "devices, kernel info", "kernel.devices", "/dev/kmsg mounted inside"),
    Probe(25, "privileges of commands", "kernel.status", 'no "no new privileges", one filter'),
    Probe(26, "limits of the host", "kernel.host_limits", _UNFILTERED),
    _outside(26, "shared state", "copies.shared_state", "a volume that both write"),
    _outside(27, "hostile agents", "agents.hostile_agents",
             "an engine that looks at no answer of agents"),
    _outside(27, "silent agents", "agents.silent_agents",
             "answers of an engine at fault", slow=True),
    _outside(28, "callers against the host", "callers.against_the_host",
             "an engine that takes any value"),
)  # fmt: skip


def chosen(names: tuple[str, ...], *, slow: bool) -> tuple[Probe, ...]:
    """Return the probes with these names or numbers; all of them when none is given.

    Raises:
        ValueError: there is no probe of a name.
    """
    if not names:
        return tuple(probe for probe in PROBES if slow or not probe.slow)
    unknown = set(names) - {known for probe in PROBES for known in (probe.name, str(probe.number))}
    if unknown:
        raise ValueError(", ".join(sorted(unknown)))
    return tuple(probe for probe in PROBES if {probe.name, str(probe.number)} & set(names))
