"""The launcher as root of the user's own namespace; what it is for is in test_driver's hostile links."""

import json
import os
from pathlib import Path
from typing import Any

import rootless

SCRIPT = """\
import os, sys
sys.path.insert(0, {package!r})
from atoll.runtime.bwrap import launcher
fd = os.memfd_create("plan")
os.pwrite(fd, {plan!r}, 0)
os.dup2(fd, launcher.PLAN)
launcher.main()
"""


def launch(lent: rootless.User, plan: dict[str, Any]) -> Any:
    import atoll

    package = str(Path(atoll.__file__).parent.parent)
    script = SCRIPT.format(package=package, plan=json.dumps(plan).encode())
    return lent.run(lent.python, "-I", "-S", "-c", script)


def folders(lent: rootless.User, name: str) -> dict[str, str]:
    made = {part: lent.home / name / part for part in ("lower", "upper", "work", "root")}
    for path in made.values():
        path.mkdir(parents=True)
        os.chown(path, rootless.UID, rootless.UID)
    return {part: str(path) for part, path in made.items()}


def plan_of(found: dict[str, str], *argv: str) -> dict[str, Any]:
    lowers, rest = [found["lower"]], {k: found[k] for k in ("upper", "work", "root")}
    return {
        **rest,
        "group": None,
        "netns": None,
        "lowers": lowers,
        "attached": [],
        "targets": {"/etc/hosts": False},
        "argv": list(argv),
    }


def test_the_program_is_root_there_with_the_overlay_mounted(lent: rootless.User) -> None:
    found = folders(lent, "one")
    Path(found["lower"], "below").write_text("of the image")
    command = f"id -u; cat {found['root']}/below; echo own > {found['root']}/above"
    done = launch(lent, plan_of(found, "/bin/sh", "-c", command))
    assert (done.returncode, done.stdout) == (0, "0\nof the image"), done.stderr
    assert Path(found["upper"], "above").read_text() == "own\n"
    assert os.listdir(found["root"]) == []  # mounted in its own namespace only


def test_links_where_something_is_mounted_are_moved_aside(lent: rootless.User) -> None:
    found = folders(lent, "two")
    Path(found["upper"], "etc").symlink_to("/etc")
    Path(found["upper"], "dev").symlink_to("/dev")
    done = launch(lent, plan_of(found, "/bin/ls", found["root"]))
    assert done.returncode == 0, done.stderr
    assert "dev\n" not in done.stdout
    assert "etc\n" not in done.stdout


def test_a_root_that_cannot_be_mounted_is_told(lent: rootless.User) -> None:
    found = folders(lent, "three")
    done = launch(lent, plan_of(found | {"upper": "/nowhere"}, "/bin/true"))
    assert done.returncode != 0
    assert "/nowhere: No such file" in done.stderr
