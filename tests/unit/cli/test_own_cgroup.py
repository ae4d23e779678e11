from pathlib import Path

from atoll.cli.own_cgroup import Bounds, bounds

SCOPE = "user.slice/user-1000.slice/user@1000.service/app.slice/run-r1.scope"
TOLD = f"0::/{SCOPE}\n"


def layout(mount: Path, **limits: str) -> None:
    """Make the groups of a user's scope; `app__memory` is memory.max of app.slice."""
    (mount / SCOPE).mkdir(parents=True)
    folders = {"scope": mount / SCOPE, "app": (mount / SCOPE).parent, "root": mount}
    for name, text in limits.items():
        where, _, controller = name.partition("__")
        (folders[where] / f"{controller}.max").write_text(text + "\n")


def test_limits_of_a_scope_are_found(tmp_path: Path) -> None:
    layout(tmp_path, scope__memory=str(8 << 30), scope__cpu="200000 100000", scope__pids="max")
    found = bounds(TOLD, tmp_path)
    assert found == Bounds(memory=8 << 30, cpu=2.0)
    assert str(found) == "memory 8 GiB, 2 cpus"


def test_the_least_on_the_way_holds_and_the_root_has_none(tmp_path: Path) -> None:
    layout(tmp_path, scope__pids="512", app__pids="100", app__memory="1073741824", root__pids="1")
    assert bounds(TOLD, tmp_path) == Bounds(memory=1 << 30, pids=100)


def test_where_nothing_is_limited_nothing_is_said(tmp_path: Path) -> None:
    layout(tmp_path, scope__memory="max", scope__cpu="max 100000")
    assert str(bounds(TOLD, tmp_path)) == ""


def test_other_layouts_have_none(tmp_path: Path) -> None:
    """Version 1, hybrid ones, a group outside the namespace, nonsense."""
    for told in ("", "5:memory:/a\n1:name=systemd:/b\n", "0::/../../x\n", "0::/not/here\n", "x"):
        assert bounds(told, tmp_path) == Bounds()
