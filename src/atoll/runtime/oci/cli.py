"""Which OCI runtime this host allows, and its command lines.

Runtimes are asked (`features`), not guessed from version numbers. What no runtime tells is how it
gets on with the host's cgroups: crun refuses to start when v1 and v2 share the controllers among
them, so that is decided here from what is mounted. The choice carries its reason, for `doctor`
and the log.
"""

import itertools
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from atoll.errors import RuntimeNotAvailableError
from atoll.host import process

CANDIDATES = ("crun", "runc")
"""In order of preference: crun starts a container in about half the time."""

_NEEDED = {
    "namespaces": {"user", "pid", "mount", "ipc", "uts", "network", "cgroup"},
    "seccomp operators": {"SCMP_CMP_GE", "SCMP_CMP_MASKED_EQ"},
}


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An installed runtime.

    `features` is None when it cannot tell (crun before 1.8.6); `fault` is what it says when it does not even
    start, as where one of its libraries is missing.
    """

    name: str
    path: Path
    features: Mapping[str, Any] | None = None
    fault: str | None = None


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The runtime in use, and why it is this one."""

    name: str
    path: Path
    reason: str


async def probe(names: Sequence[str] = CANDIDATES) -> list[Candidate]:
    """Return the runtimes of *names* that are installed, with what they say about themselves."""
    found = [(name, path) for name in names if (path := shutil.which(name, path=_PATH))]
    return [await _asked(name, path) for name, path in found]


_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


async def _asked(name: str, path: str) -> Candidate:
    features, fault = None, None
    try:
        features = await _features(path)
        done = None if features else await process.run([path, "--version"], timeout=10)
        if done and done.code:
            fault = f"does not start: {done.message or f'exit code {done.code}'}"
    except OSError as error:
        fault = f"does not start: {error.strerror or error}"
    return Candidate(name=name, path=Path(path), features=features, fault=fault)


async def _features(path: str) -> Mapping[str, Any] | None:
    done = await process.run([path, "features"], timeout=10)
    try:
        features = json.loads(done.stdout) if done.code == 0 else None
    except ValueError:
        return None
    return features if isinstance(features, dict) else None


def choose(candidates: Sequence[Candidate], wanted: str, cgroup_mode: str) -> Choice:
    """Return the first candidate that works here.

    Args:
        candidates: in order of preference.
        wanted: a name, or ``auto``.
        cgroup_mode: ``v1``, ``v2`` or ``hybrid`` (`Hierarchies.mode`).

    Raises:
        RuntimeNotAvailableError: none does; `context.rejected` says why for each.
    """
    rejected: dict[str, str] = {}
    for candidate in candidates:
        if wanted not in ("auto", candidate.name):
            continue
        if objection := _objection(candidate, cgroup_mode):
            rejected[candidate.name] = objection
            continue
        reason = _reason(wanted, _absent(candidates, candidate) | rejected)
        return Choice(name=candidate.name, path=candidate.path, reason=reason)
    name = "OCI runtime" if wanted == "auto" else wanted
    because = "; ".join(f"{n} {why}" for n, why in rejected.items()) or "none is installed"
    raise RuntimeNotAvailableError(
        f"no usable {name}: {because}",
        context={"wanted": wanted, "rejected": rejected},
        suggestion="install runc (Debian: apt install runc), or crun where cgroups are v2 only",
    )


def _absent(candidates: Sequence[Candidate], chosen: Candidate) -> dict[str, str]:
    """Return what would have been preferred, if it were installed."""
    installed = {one.name for one in candidates}
    preferred = itertools.takewhile(lambda name: name != chosen.name, CANDIDATES)
    return dict.fromkeys(set(preferred) - installed, "is not installed")


def _reason(wanted: str, rejected: Mapping[str, str]) -> str:
    if wanted != "auto":
        return "chosen by the setting runtime.oci"
    preferred = "; ".join(f"{name} {why}" for name, why in rejected.items())
    return f"first that works here ({preferred})" if preferred else "preferred, and works here"


def _objection(candidate: Candidate, cgroup_mode: str) -> str | None:
    if candidate.fault:
        return candidate.fault
    if candidate.name == "crun" and cgroup_mode == "hybrid":
        return "refuses hybrid cgroups (controllers in both v1 and v2)"
    if candidate.features is None:
        return None
    missing = {
        what: sorted(needed - told)
        for what, needed in _NEEDED.items()
        if not needed <= (told := _told(candidate.features, what))
    }
    return f"lacks {missing}" if missing else None


def _told(features: Mapping[str, Any], what: str) -> set[str]:
    linux = features.get("linux") or {}
    if what == "namespaces":
        return set(linux.get("namespaces") or ())
    return set((linux.get("seccomp") or {}).get("operators") or ())


def run_argv(
    choice: Choice,
    *,
    root: Path,
    log: Path,
    bundle: Path,
    pid_file: Path,
    name: str,
    fds: int,
    enter: Sequence[str] = (),
) -> list[str]:
    """Return the command line that creates and starts a container and then exits.

    Args:
        choice: the runtime.
        root: its state directory, ours alone.
        log: where it writes its JSON log.
        bundle: directory with config.json.
        pid_file: where it writes the init's pid.
        name: the container's.
        fds: how many descriptors from 3 on the init inherits.
        enter: what the runtime is started by; see `entering`.
    """
    options = ["--root", root, "--log", log, "--log-format", "json"]
    verb = ["run", "--detach", "--bundle", bundle, "--pid-file", pid_file]
    return [
        str(part) for part in (*enter, choice.path, *options, *verb, "--preserve-fds", fds, name)
    ]


def entering(netns: Path | None) -> list[str]:
    """Return what starts a program in *netns*; nothing when there is none to enter.

    Raises:
        RuntimeNotAvailableError: nsenter is missing.
    """
    if netns is None:
        return []
    if program := shutil.which("nsenter", path=_PATH):
        return [program, f"--net={netns}", "--"]
    raise RuntimeNotAvailableError(
        "nsenter is missing", suggestion="install it (Debian: apt install util-linux)"
    )
