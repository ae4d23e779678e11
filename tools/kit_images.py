"""Images for nodes without a registry: agent, base image, and an engine upon it, of what is here.

The engine's has the same parts as that of deploy/kubernetes/Dockerfile, but from this environment
instead of from package indexes: it takes seconds. What the base image's Python cannot load from here
would be found by the first start.
"""

import asyncio
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement

import atoll
from atoll.images.store import ImageStore
from atoll.load_settings import load
from atoll.runtime.kubernetes import agent_folder

AGENT = "docker.io/atoll/agent"
BASE = "docker.io/atoll/base:latest"
ENGINE = "docker.io/atoll/engine"

_PROGRAM = b"""\
#!/bin/sh
PYTHONPATH=/opt/atoll/packages exec python3 -c 'from atoll.cli.main import main; main()' "$@"
"""


class Made(NamedTuple):
    """An image in a folder: the archives of its layers, lowest first."""

    name: str
    layers: tuple[Path, ...]
    config: dict[str, Any]

    def pack(self, archive: Path) -> None:
        """Write it as `docker save` would."""
        digests = [_digest(layer) for layer in self.layers]
        told = {
            "architecture": "amd64",
            "os": "linux",
            "config": self.config,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{one}" for one in digests]},
        }
        body = json.dumps(told).encode()
        file = f"{hashlib.sha256(body).hexdigest()}.json"
        paths = [f"{one}/layer.tar" for one in digests]
        index = [{"Config": file, "RepoTags": [self.name], "Layers": paths}]
        with tarfile.open(archive, "w") as tar:
            for path, layer in zip(paths, self.layers, strict=True):
                tar.add(layer, path)
            _put(tar, file, body)
            _put(tar, "manifest.json", json.dumps(index).encode())


class Wanted(NamedTuple):
    """Names of images; their tags are their contents'. What a node lacks is made anew."""

    agent: str
    engine: str

    @classmethod
    def now(cls, folder: Path) -> "Wanted":
        """Return the names of what is here; the agent is left in *folder*."""
        agent = asyncio.run(agent_folder.lay(folder / "agent"))
        return cls(f"{AGENT}:{agent[:16]}", f"{ENGINE}:{_tag()}")

    def make(self, folder: Path, *, engine: bool) -> Iterator[Made]:
        """Make the images in *folder*, those first that others need."""
        agent, tools = folder / "agent.tar", folder / "tools.tar"
        with tarfile.open(agent, "w") as tar:
            tar.add(folder / "agent", "opt/atoll/agent")
        with tarfile.open(tools, "w") as tar:  # of its own: elsewhere /bin may be a link
            for path in ("tmp", "proc", "sys", "dev", "etc"):
                _put(tar, f"{path}/.keep", b"")
            _put(tar, "bin/cp", Path("/bin/busybox").read_bytes(), mode=0o755)
        yield Made(self.agent, (tools, agent), {})
        base, config = _base(folder)
        yield Made(BASE, (base,), config)
        if engine:
            serve = {
                "Entrypoint": ["/opt/atoll/bin/atoll"],
                "Cmd": ["serve"],
                "User": "65532:65532",
            }
            yield Made(self.engine, (base, agent, _packages(folder)), config | serve)


def _base(folder: Path) -> tuple[Path, dict[str, Any]]:
    settings = load().settings
    image = asyncio.run(ImageStore(settings.storage, settings.images).obtain("atoll/base"))
    path = folder / "base.tar"
    with tarfile.open(path, "w") as tar:
        for layer in reversed(image.layers):
            tar.add(layer, ".", filter=lambda one: one if one.isreg() or not one.isdev() else None)
    env = [f"{name}={value}" for name, value in image.config.env.items()]
    return path, {"Env": env, "WorkingDir": image.config.workdir or "/workspace"}


def _packages(folder: Path) -> Path:
    path = folder / "packages.tar"
    with tarfile.open(path, "w") as tar:
        _put(tar, "opt/atoll/bin/atoll", _PROGRAM, mode=0o755)
        for source in _sources():
            tar.add(source, Path("opt/atoll/packages/atoll", source.relative_to(_HERE)))
        for name in _versions():
            for file in metadata.distribution(name).files or ():
                if ".." not in file.parts and name != "atoll":
                    tar.add(file.locate(), Path("opt/atoll/packages", file))
    return path


def _tag() -> str:
    known = hashlib.sha256(repr(sorted(_versions().items())).encode() + Path(__file__).read_bytes())
    for path in _sources():
        known.update(path.read_bytes())
    return known.hexdigest()[:16]


_HERE = Path(atoll.__file__).parent


def _sources() -> list[Path]:
    return sorted(path for path in _HERE.rglob("*") if path.is_file() and path.suffix != ".pyc")


def _versions() -> dict[str, str]:
    """Return the distributions that an engine of a cluster needs, with their versions."""
    found: dict[str, str] = {}
    seen: set[str] = set()
    wanted = [Requirement("atoll[cluster]")]
    while wanted:
        one = wanted.pop()
        if str(one) in seen:
            continue
        seen.add(str(one))
        distribution = metadata.distribution(one.name)
        found[one.name] = distribution.version
        every = map(Requirement, distribution.requires or ())
        wanted += [needed for needed in every if _applies(needed, one.extras)]
    return found


def _applies(needed: Requirement, extras: set[str]) -> bool:
    marker = needed.marker
    return not marker or any(marker.evaluate({"extra": extra}) for extra in extras or {""})


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _put(tar: tarfile.TarFile, path: str, content: bytes, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))
