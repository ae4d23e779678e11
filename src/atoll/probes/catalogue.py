"""The table of probes: class, what has to hold, and the function that tries. Pure.

Numbers are those of the classes of attack; what one number says may take several functions.
"""

from typing import NamedTuple


class Probe(NamedTuple):
    """One row. `function` is "module.name" below `atoll.probes.inside` or `atoll.probes.outside`."""

    number: int
    about: str
    function: str
    inside: bool = True
    slow: bool = False  # takes minutes: only when asked for

    @property
    def name(self) -> str:
        """What it is called on the command line."""
        return self.function.partition(".")[2].replace("_", "-")


def _outside(number: int, about: str, function: str, *, slow: bool = False) -> Probe:
    return Probe(number, about, function, inside=False, slow=slow)


PROBES: tuple[Probe, ...] = (
    Probe(1, "runtime binary overwrite", "boundary.runtime_binary"),
    Probe(2, "leaked descriptors, cwd", "boundary.descriptors"),
    Probe(3, "masked paths, console", "kernel.masked_paths"),
    _outside(4, "mount target swap", "files.target_swap"),
    _outside(5, "archive members", "files.archive_members"),
    Probe(6, "cgroup escape", "kernel.cgroup_escape"),
    Probe(7, "kernel sockets", "kernel.address_families"),
    _outside(7, "image unchanged", "files.image_unchanged"),
    Probe(8, "nested namespaces", "kernel.nested_namespaces"),
    Probe(9, "risky system calls", "kernel.risky_calls"),
    Probe(9, "tracing the agent", "boundary.agent_is_untouchable"),
    Probe(9, "schedule of the agent", "boundary.schedule_of_the_agent"),
    Probe(9, "signals to the agent", "boundary.signals"),
    Probe(10, "sockets of the host", "boundary.sockets_of_the_host"),
    Probe(11, "metadata services", "network.metadata"),
    _outside(12, "host, neighbours", "network.east_west"),
    Probe(12, "spoofing", "network.spoofing"),
    _outside(13, "DNS as a way out", "network.names_as_a_way_out"),
    _outside(14, "ways round a list of hosts", "network.ways_round_a_list"),
    Probe(15, "read-only mounts", "boundary.read_only_mounts"),
    _outside(15, "read-only volumes", "files.read_only_volumes"),
    Probe(16, "secrets of the agent", "boundary.secrets"),
    _outside(17, "boundary of a bucket", "buckets.boundary"),
    _outside(18, "links against files", "files.links"),
    _outside(19, "exhaustion", "exhaustion.neighbours"),
    Probe(20, "terminal injection", "kernel.terminal_injection"),
    _outside(21, "previews", "previews.previews"),
    _outside(22, "forks told apart", "copies.forks"),
    _outside(23, "helper injection", "callers.injection"),
    _outside(24, "tenant mix-up", "callers.tenants"),
    Probe(25, "devices, kernel info", "kernel.devices"),
    Probe(25, "privileges of commands", "kernel.status"),
    Probe(26, "limits of the host", "kernel.host_limits"),
    _outside(26, "shared state", "copies.shared_state"),
    _outside(27, "hostile agents", "agents.hostile_agents"),
    _outside(27, "silent agents", "agents.silent_agents", slow=True),
    _outside(28, "callers against the host", "callers.against_the_host"),
)


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
