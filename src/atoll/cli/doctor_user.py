"""The look that `atoll doctor` takes at the host of a user who is not root."""

import json
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import atoll
from atoll.cli import checks_user, own_cgroup
from atoll.cli.checks import Check, Report, Verdict
from atoll.errors import SandboxError
from atoll.host import own_root, process
from atoll.network.rootless import networks
from atoll.network_settings import NetworkSettings
from atoll.runtime.bwrap import groups, program

_TRIAL = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from atoll.runtime.bwrap import launcher as l; l.enter_namespaces(); l.mount_root(*{plan})"
)


async def examine(uid: int) -> Report:
    """Look at the host and return what was found."""
    bubblewrap, part = await _bubblewrap(), groups.own()
    found = [
        checks_user.user(uid),
        checks_user.kernel(os.uname().release),
        checks_user.namespaces(
            _number("user/max_user_namespaces"),
            _number("kernel/unprivileged_userns_clone"),
            _number("kernel/apparmor_restrict_unprivileged_userns"),
        ),
        bubblewrap,
        checks_user.root(await trial()),
        checks_user.limits(str(own_cgroup.own()), part.controllers if part else None),
        checks_user.network(networks.missing_tools(), await network_trial()),
        checks_user.image(
            ids=bool(process.find("newuidmap")),
            mmdebstrap=bool(process.find("mmdebstrap")),
            skopeo=bool(process.find("skopeo")),
        ),
    ]
    usable = not any(check.verdict is Verdict.FAILED for check in found)
    level = "bwrap" if usable else None
    return Report(isolation=level, runtime=level, checks=found)


async def _bubblewrap() -> Check:
    try:
        chosen = await program.choose(program.candidates())
    except SandboxError as error:
        return checks_user.bubblewrap(None, error.message)
    return checks_user.bubblewrap(str(chosen.path), chosen.version)


async def trial() -> str | None:
    """Mount an overlay as a sandbox's would be; return why that failed, None if it did not."""
    folder = Path(tempfile.mkdtemp(prefix=".atoll-doctor-", dir=Path.home()))
    try:
        names = [folder / name for name in ("lower", "upper", "work", "root")]
        for path in names:
            path.mkdir()
        lower, *others = map(str, names)
        code = _TRIAL.format(plan=json.dumps([[lower], *others]))
        package = Path(atoll.__file__).parent.parent
        done = await process.run([sys.executable, "-I", "-S", "-c", code, package], timeout=10)
        lines = done.message.splitlines()
        return lines[-1] if done.code else None
    finally:
        await own_root.remove(folder)  # not even its owner may enter what overlay leaves in "work"


async def network_trial() -> str | None:
    """Make a network as a sandbox's would be; return why that failed, None if it did not."""
    if networks.missing_tools():
        return None
    folder = Path(tempfile.mkdtemp(prefix="atoll-doctor-"))
    trial = networks.UserNetworks(NetworkSettings(), folder)
    try:
        await trial.open()
        return trial.problem
    except OSError as error:
        return str(error)
    finally:
        await trial.close()
        shutil.rmtree(folder, ignore_errors=True)


def _number(name: str) -> int | None:
    with suppress(OSError, ValueError):
        return int(Path("/proc/sys", name).read_text("ascii"))
    return None
