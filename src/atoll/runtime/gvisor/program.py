"""Which runsc is here, and how it can intercept system calls on this host: found out by trying.

Neither a version nor a list tells: a platform may be unknown to a build, refused by the kernel, or
start and hang (kvm on some virtual machines). So a container of the agent's own interpreter is run,
for a bounded time and in a cgroup of its own, whose processes are killed whatever became of it.
What was found is kept until runsc or the kernel is another.
"""

import asyncio
import json
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from atoll.errors import ContainerUnavailableError, RuntimeNotAvailableError
from atoll.host import process
from atoll.runtime.gvisor.config import run_argv
from atoll.runtime.oci import cgroup
from atoll.runtime.oci.agent_bundle import AgentBundle
from atoll.runtime.oci.cgroup_files import Limits, eventually
from atoll.settings import MIB

PROGRAM: Final = "runsc"

PLATFORMS: Final = ("systrap", "ptrace", "kvm")
"""In the order they are tried. systrap is the fastest without hardware; ptrace is what it followed;
kvm is last because where it does not work it hangs."""

TRIAL: Final = 5.0
"""Seconds that a trial may take; one that works needs about 0.2."""

_LIMITS: Final = Limits(memory=512 * MIB, cpu=2.0, pids=256)
_ENGINE: Final = "trial"
_SUGGESTION: Final = "install runsc (Debian: apt install runsc), and see `atoll doctor`"


class Platform(msgspec.Struct, frozen=True, kw_only=True):
    """A runsc that works here, and how."""

    path: str
    name: str
    rejected: dict[str, str] = {}  # platform → why not
    lists_files: bool = True  # statx takes AT_NO_AUTOMOUNT, which ls and stat of coreutils 9 pass

    @property
    def reason(self) -> str:
        """Why it is this one, for people."""
        notes = [f"{name}: {why}" for name, why in self.rejected.items()]
        if not self.lists_files:
            notes.append(_OLD)
        return "; ".join((f"platform {self.name} (tried)", *notes))


async def choose(cache_dir: Path, agent: AgentBundle) -> Platform:
    """Return the first platform that works on this host.

    Args:
        cache_dir: where the outcome is kept.
        agent: whose interpreter is run.

    Raises:
        RuntimeNotAvailableError: there is no runsc, or none of its platforms works.
    """
    found = process.find(PROGRAM)
    if found is None:
        raise RuntimeNotAvailableError(f"{PROGRAM} is not installed", suggestion=_SUGGESTION)
    kept = cache_dir / "gvisor.json"
    key = await asyncio.to_thread(_key, Path(found))
    if (known := _read(kept, key)) is not None:
        return known
    chosen = await _try_all(Path(found), agent)
    await asyncio.to_thread(_write, kept, key, chosen)
    return chosen


async def _try_all(program: Path, agent: AgentBundle) -> Platform:
    rejected: dict[str, str] = {}
    for name in PLATFORMS:
        outcome = await tried(program, name, agent)
        if outcome in {_RUNS, _RUNS_OLD}:
            lists = outcome == _RUNS
            return Platform(path=str(program), name=name, rejected=rejected, lists_files=lists)
        rejected[name] = outcome
    raise RuntimeNotAvailableError(
        f"{PROGRAM} does not work here: {rejected}",
        context={"rejected": rejected},
        suggestion=_SUGGESTION,
    )


async def tried(program: Path, platform: str, agent: AgentBundle) -> str:
    """Run a container on *platform*; return what it said of its kernel, or what went wrong."""
    group = cgroup.of(cgroup.mounted(), _ENGINE, f"gvisor-{secrets.token_hex(4)}")
    with tempfile.TemporaryDirectory(prefix="atoll-runsc-") as folder:
        try:
            await asyncio.to_thread(group.make, _LIMITS)
            return await _run(program, platform, agent, group, Path(folder))
        except (OSError, ContainerUnavailableError) as error:
            return str(error) or type(error).__name__
        finally:
            await asyncio.to_thread(_end, group)


def _end(group: cgroup.Cgroup) -> None:
    with suppress(ContainerUnavailableError):
        cgroup.kill(group)
        group.remove()


async def _run(
    program: Path, platform: str, agent: AgentBundle, group: cgroup.Cgroup, folder: Path
) -> str:
    (folder / "config.json").write_text(json.dumps(_config(agent)))
    argv = run_argv(
        program,
        platform,
        groups=group.join_files(),
        options={"root": folder / "state", "network": "none"},
        bundle_dir=folder,
        pid_file=folder / "pid",
        name="trial",
    )
    said, empty = os.memfd_create("trial"), os.open(os.devnull, os.O_RDONLY)
    try:
        code = await process.run_handing_over(argv, [empty], output=said, timeout=TRIAL)
        if not code:
            await asyncio.to_thread(eventually, lambda: _RUNS in _all(said), TRIAL)
        lines = _all(said).strip().splitlines()
        return lines[-1][:200] if lines else f"exit code {code}"
    except TimeoutError:
        return f"does not answer within {TRIAL:g} s"
    finally:
        os.close(said)
        os.close(empty)


_RUNS: Final = "runs"
_RUNS_OLD: Final = "runs, and knows no AT_NO_AUTOMOUNT"

_OLD: Final = (
    "its kernel does not know AT_NO_AUTOMOUNT, so ls and stat of images with coreutils 9 (Debian 12)"
    " fail; a newer runsc does: see gvisor.dev"
)

_TRIAL_CODE: Final = f"""
import ctypes
statx = ctypes.CDLL(None).statx
known = not statx(-100, b"/", 0x800, 0x7ff, ctypes.create_string_buffer(512))
print({_RUNS!r} if known else {_RUNS_OLD!r}, flush=True)
"""


def _config(agent: AgentBundle) -> dict[str, object]:
    """Return a container whose root is the agent's directory."""
    python = [f"/lib/{agent.loader}", "--library-path", "/lib", "/bin/python", "-I", "-S", "-c"]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": [*python, _TRIAL_CODE],
            "cwd": "/",
        },
        "root": {"path": str(agent.path), "readonly": True},
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount", "network")]},
    }


def _all(file: int) -> str:
    return os.pread(file, 1 << 16, 0).decode(errors="replace")


def _key(program: Path) -> str:
    status, host = program.stat(), os.uname()
    return f"{program} {status.st_size} {status.st_mtime_ns} {host.release} {host.version}"


class _Kept(msgspec.Struct):
    key: str
    platform: Platform


def _read(path: Path, key: str) -> Platform | None:
    with suppress(OSError, msgspec.MsgspecError):
        kept = msgspec.json.decode(path.read_bytes(), type=_Kept)
        return kept.platform if kept.key == key else None
    return None


def _write(path: Path, key: str, platform: Platform) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    draft.write_bytes(msgspec.json.encode(_Kept(key, platform)))
    draft.rename(path)
