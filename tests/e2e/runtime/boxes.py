"""Sandboxes for tests of the driver and for probes: a root, a spec, a client of the agent."""

import json
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from atoll.runtime.base import Container, ContainerSpec
from atoll.runtime.oci import bundle, driver
from atoll.runtime.oci.bundle import AGENT_DIR
from atoll.runtime.oci.driver import OciRuntime
from atoll.settings import RuntimeSettings, StorageSettings
from e2e.runtime.roots import CACHE, ID_BASE, lower
from integration.agent.client import Client

Weaken = Callable[[dict[str, Any]], None]


class Box(Client):
    """A running sandbox."""

    def __init__(self, runtime: OciRuntime, spec: ContainerSpec, container: Container) -> None:
        super().__init__(str(spec.run_dir / "agent.sock"), container.pid, spec.run_dir)
        self.runtime, self.spec, self.container = runtime, spec, container

    def sh(self, script: str, **fields: Any) -> str:
        """Run *script* by /bin/sh; return what it printed, both streams."""
        done = self.exec(["/bin/sh", "-c", script], **fields)
        return (done.stdout + done.stderr).decode()

    def python(self, script: str, **fields: Any) -> str:
        """Run a Python script as a command, by the interpreter that every sandbox has."""
        done = self.exec(self.argv(script), **fields)
        assert done.code == 0, done
        return done.stdout.decode()

    def argv(self, script: str) -> list[str]:
        """Return the command that runs a Python script."""
        library = f"{AGENT_DIR}/lib"
        loader = next(self.runtime.agent.path.glob("lib/ld-*")).name
        argv = [f"{library}/{loader}", "--library-path", library, f"{AGENT_DIR}/bin/python"]
        return [*argv, "-I", "-S", "-c", script]


class Bench:
    """A driver with a state directory of its own; removes all it made."""

    def __init__(self, runtime: OciRuntime, home: Path) -> None:
        self.runtime, self.home = runtime, home
        self._roots: list[Path] = []

    def spec(self, kind: str = "busybox", **changes: Any) -> ContainerSpec:
        """Return a spec with a fresh overlay of the root *kind*."""
        ref = f"t-{uuid.uuid4().hex[:10]}"
        spec = ContainerSpec(
            host_ref=ref,
            generation=1,
            identity=ref,
            hostname="box",
            rootfs=self._overlay(lower(kind), self.home / "roots" / ref),
            run_dir=self.home / "run" / ref,
            netns=None,
            id_base=ID_BASE,
            id_count=65_536,
            memory=256 << 20,
            cpu=1.0,
            pids=256,
        )
        return msgspec.structs.replace(spec, **changes)

    def _overlay(self, below: Path, home: Path) -> Path:
        upper, work, root = (home / name for name in ("upper", "work", "root"))
        for path in (upper, work, root):
            path.mkdir(parents=True)
        shutil.chown(upper, ID_BASE, ID_BASE)
        options = f"nosuid,nodev,lowerdir={below},upperdir={upper},workdir={work}"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, root], check=True)
        self._roots.append(root)
        return root

    @asynccontextmanager
    async def running(self, kind: str = "busybox", **changes: Any) -> AsyncIterator[Box]:
        """Start a sandbox; remove it at the end."""
        spec = self.spec(kind, **changes)
        container = await self.runtime.start(spec)
        try:
            yield Box(self.runtime, spec, container)
        finally:
            await self.runtime.remove(spec.host_ref)

    async def close(self) -> None:
        """Remove whatever is left."""
        for ref in await self.runtime.list():
            await self.runtime.remove(ref)
        for root in self._roots:
            subprocess.run(["umount", root], check=True)
        shutil.rmtree(self.home)


async def open_bench() -> Bench:
    """Return a bench; its agent bundle is cached beside the roots."""
    home = Path(tempfile.mkdtemp(prefix="atoll-"))
    home.chmod(0o711)  # the first process of a container walks to its root with mapped ids
    storage = StorageSettings(state_dir=home / "state", cache_dir=CACHE)
    runtime = await OciRuntime.open(RuntimeSettings(), storage, home.name)
    return Bench(runtime, home)


@asynccontextmanager
async def weakened(
    monkeypatch: Any, weaken: Weaken, *, confine: bool = True
) -> AsyncIterator[None]:
    """Start what follows from a configuration with something taken away."""
    config, agent_config = bundle.config, driver.agent_config

    def weaker(*args: Any) -> dict[str, Any]:
        made = config(*args)
        weaken(made)
        return made

    def less(*args: Any) -> bytes:
        return json.dumps(json.loads(agent_config(*args)) | {"confine": confine}).encode()

    with monkeypatch.context() as patch:
        patch.setattr(bundle, "config", weaker)
        patch.setattr(driver, "agent_config", less)
        yield
