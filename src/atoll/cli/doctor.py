"""``atoll doctor``: what this host allows, what to install, which isolation is in force."""

import asyncio
import json
import os
import shutil
import tempfile
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Annotated

import typer

from atoll.cli import checks, doctor_user
from atoll.cli.checks import Check, Report, Verdict
from atoll.cli.options import AsJson, print_json
from atoll.errors import SandboxError
from atoll.network_settings import NetworkSettings
from atoll.settings import Settings, StorageSettings

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MARKS = {Verdict.OK: "ok  ", Verdict.WARNING: "warn", Verdict.FAILED: "FAIL"}


def doctor(
    *,
    config: Annotated[Path | None, typer.Option(help="An atoll.toml.")] = None,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Check the cluster of the settings instead.")
    ] = False,
    probe: Annotated[
        bool, typer.Option("--probe", help="Attack sandboxes of this host, and say what held.")
    ] = False,
    level: Annotated[
        list[str] | None, typer.Option(help="With --probe: only at this isolation level.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="With --probe: only the probe of this name or number.")
    ] = None,
    slow: Annotated[
        bool, typer.Option("--slow", help="With --probe: those of minutes too.")
    ] = False,
    image: Annotated[
        str | None, typer.Option(help="With --probe: image of the sandboxes, with a shell.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check this host; exit with 1 when sandboxes cannot run here, or a probe found something."""
    from atoll.load_settings import load

    if probe:
        from atoll.cli import probing

        asked = probing.Asked(tuple(level or ()), tuple(only or ()), slow, image, config)
        raise typer.Exit(probing.probe(asked, as_json=as_json))
    look = _cluster if cluster else examine
    report = asyncio.run(look(load(file=config).settings))
    if as_json:
        print_json(report)
    else:
        for check in report.checks:
            print(f"{_MARKS[check.verdict]}  {check.name:<16} {check.seen}")
            if check.advice:
                print(f"{'':<23}→ {check.advice}")
        where = "there" if cluster else "here"
        in_force = report.isolation or f"none: sandboxes cannot run {where}"
        print(f"\nisolation level in force: {in_force}")
    raise typer.Exit(report.isolation is None)


async def _cluster(settings: Settings) -> Report:
    try:
        from atoll.cli import doctor_cluster  # needs an extra
    except ModuleNotFoundError as error:
        from atoll.engine.components import extra_missing

        raise extra_missing(error) from error
    return await doctor_cluster.examine(settings)


async def examine(settings: Settings) -> Report:
    """Look at the host and return what was found."""
    uid = os.geteuid()
    if uid:
        return await doctor_user.examine(uid)
    level = "gvisor" if settings.runtime.default == "gvisor" else "container"
    oci = level == "container"
    runtime_name, runtime_check, cgroup_check = await _runtime(settings.runtime.oci, needed=oci)
    found = [
        checks.root(uid),
        checks.kernel(os.uname().release),
        checks.user_namespaces(_user_namespaces()),
        cgroup_check,
        runtime_check,
        await _gvisor(settings.storage, needed=not oci),
        checks.fuse(present=_has_fuse()),
        *(checks.tool(name, shutil.which(name, path=_PATH)) for name in checks.TOOLS),
    ]
    found += [await _storage(settings), *await _network(settings.network)]
    return checks.report(found, level, runtime_name if oci else "runsc")


def _has_fuse() -> bool:
    return Path("/dev/fuse").exists()


def _user_namespaces() -> int | None:
    with suppress(OSError, ValueError):
        return int(Path("/proc/sys/user/max_user_namespaces").read_text("ascii"))
    return None


async def _runtime(wanted: str, *, needed: bool) -> tuple[str | None, Check, Check]:
    from atoll.runtime.oci import cgroup, cli

    hierarchies = cgroup.mounted()
    judged = checks.cgroups(hierarchies.mode, [*hierarchies.v1, *hierarchies.v2_controllers])
    try:
        choice = cli.choose(await cli.probe(), wanted, hierarchies.mode)
    except SandboxError as error:
        return None, checks.runtime(None, error.message, needed=needed), judged
    return choice.name, checks.runtime(choice.name, choice.reason), judged


async def _gvisor(storage: StorageSettings, *, needed: bool) -> Check:
    """Try a container on each of its platforms; what was found is kept for the engine."""
    from atoll.host import process
    from atoll.runtime.gvisor import program
    from atoll.runtime.oci import agent_bundle

    if process.find(program.PROGRAM) is None:
        return checks.gvisor(None, f"{program.PROGRAM} is not installed", needed=needed)
    try:
        agent = await agent_bundle.build(storage.cache_dir)
        chosen = await program.choose(storage.cache_dir, agent)
    except (SandboxError, OSError) as error:
        return checks.gvisor(None, str(error), needed=needed)
    return checks.gvisor(chosen.name, chosen.reason, old=not chosen.lists_files)


async def _storage(settings: Settings) -> Check:
    """Mount a root in a store of its own, beside the real one, and remove both."""
    from atoll.storage.layers import LayerStore
    from atoll.storage.rootfs import RootfsStore

    ids = settings.runtime
    parent = next(path for path in settings.storage.state_dir.parents if path.is_dir())
    with tempfile.TemporaryDirectory(prefix=".atoll-doctor-", dir=parent) as folder:
        trial = StorageSettings(state_dir=Path(folder), layer_store_gb=1, reserve_mb=1)
        lower = Path(folder) / "lower"
        lower.mkdir(mode=0o755)
        layers = LayerStore(trial)
        try:
            async with AsyncExitStack() as stack:
                await layers.open()
                stack.push_async_callback(layers.close, unmount=True)
                roots = RootfsStore(trial, layers, base=Path(folder) / "roots")
                await roots.open()
                stack.push_async_callback(roots.close)
                await layers.create("trial", 100 << 20)
                stack.push_async_callback(layers.delete, "trial")
                stack.push_async_callback(roots.unmount, "trial")
                await roots.mount("trial", [lower], "trial", ids.id_base, ids.id_count)
        except (SandboxError, OSError) as error:
            return checks.storage(None, str(error))
        return checks.storage(layers.kind, None)


async def _network(settings: NetworkSettings) -> list[Check]:
    from atoll.host import process
    from atoll.network import foreign, resolvers

    resolved = checks.dns(settings.nameservers or resolvers.host_nameservers())
    try:
        done = await process.run(["nft", "-j", "list", "chains"], timeout=10)
    except (FileNotFoundError, TimeoutError) as error:
        return [resolved, checks.packet_filter(str(error))]
    if done.code:
        return [resolved, checks.packet_filter(done.message)]
    refusals = foreign.refusals(json.loads(done.stdout), "forward")
    forwarding = checks.forwarding(refusals, foreign.SUGGESTIONS["forward"])
    return [resolved, checks.packet_filter(None), forwarding]
