import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from atoll.storage import diff, patch


@pytest.fixture
def states(tmp_path: Path) -> tuple[Path, Path, Path]:
    """An upper folder, the same later, and the image below."""
    folders = tmp_path / "before", tmp_path / "now", tmp_path / "image"
    for folder in folders:
        folder.mkdir()
    return folders


def changed(before: Path, now: Path, image: Path) -> bytes:
    text, complete = patch.write(diff.changes(before, now, [image]), before, now, [image])
    assert complete
    return text


def test_git_makes_of_one_state_the_other(states: tuple[Path, Path, Path]) -> None:
    before, now, image = states
    (image / "base").write_text("from the image\n")
    (before / "edited").write_text("1\n2\n3\n")
    (before / "gone").write_text("gone\n")
    (before / "tool").write_text("echo\n")
    (before / "link").symlink_to("edited")
    (before / "became").write_text("file\n")
    shutil.copytree(before, now, symlinks=True, dirs_exist_ok=True)
    (now / "edited").write_text("1\ntwo\n3")
    (now / "gone").unlink()
    (now / "tool").chmod(0o755)
    (now / "link").unlink()
    (now / "link").symlink_to("tool")
    (now / "became").unlink()
    (now / "became").symlink_to("tool")
    (now / "base").write_text("changed\n")
    (now / 'new "häuser"\n').write_text("new\n")
    (now / "d").mkdir()
    (now / "d" / "empty").touch()
    text = changed(*states)

    tree = before.parent / "tree"
    shutil.copytree(image, tree)
    shutil.copytree(before, tree, symlinks=True, dirs_exist_ok=True)
    subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], input=text, cwd=tree, check=True)
    want = {str(p.relative_to(now)): _state(p) for p in now.rglob("*")}
    assert {str(p.relative_to(tree)): _state(p) for p in tree.rglob("*")} == want


def _state(path: Path) -> object:
    if path.is_symlink():
        return os.readlink(path)
    return path.is_dir() or (path.read_text(), bool(path.stat().st_mode & 0o111))


def test_what_no_patch_can_say_is_named_before_it(states: tuple[Path, Path, Path]) -> None:
    before, now, _ = states
    (now / "binary").write_bytes(b"\0" * 10)
    (now / "folder").mkdir()
    (now / "large").write_bytes(b"x" * (patch.MAX_FILE + 1))
    os.mkfifo(now / "pipe")
    (now / "text").write_text("text\n")
    text = changed(*states)
    assert text.split(b"diff --git")[0].decode().splitlines() == [
        "# /binary: created, binary, 10 bytes",
        "# /folder: created, directory",
        f"# /large: created, {patch.MAX_FILE + 1} bytes",
        "# /pipe: created, special file",
    ]
    subprocess.run(["git", "apply", "--check", "-"], input=text, cwd=before, check=True)


def test_a_link_is_read_and_never_followed(states: tuple[Path, Path, Path]) -> None:
    _, now, _ = states
    (now / "l").symlink_to("/etc/passwd")
    (now / "d").symlink_to("/etc")
    text = changed(*states)
    assert b"root:" not in text
    assert b"+/etc/passwd\n\\ No newline" in text
    assert patch.locate([now], "/d/passwd") is None


def test_a_patch_has_an_end(
    states: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, now, image = states
    for number in range(50):
        (now / f"f{number:02}").write_text("x" * 50)
    monkeypatch.setattr(patch, "MAX_PATCH", 2_000)
    text, complete = patch.write(diff.changes(before, now, [image]), before, now, [image])
    assert not complete
    assert len(text) < 2_100
    monkeypatch.setattr(patch, "MAX_SECONDS", -1.0)
    text, _ = patch.write(diff.changes(before, now, [image]), before, now, [image])
    assert b"diff --git" not in text


def test_no_file_is_read_when_the_time_is_over(
    states: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code inside may have made a million of them, each a megabyte to be compared."""
    before, now, image = states
    for number in range(20):
        (now / str(number)).write_text("text\n")
    read: list[str] = []
    side = patch._side

    def slow(layers: Sequence[Path], path: str) -> patch.Side | None:
        read.append(path)
        monkeypatch.setattr(patch, "time", Over)
        return side(layers, path)

    class Over:
        monotonic = staticmethod(lambda: float("inf"))

    monkeypatch.setattr(patch, "_side", slow)
    assert changed(before, now, image).count(b": created, the patch takes too long\n") == 19
    assert read == ["/0"]


def test_names_cannot_make_lines_of_their_own(states: tuple[Path, Path, Path]) -> None:
    _, now, _ = states
    (now / "x\n+++ b").mkdir()
    (now / "x\n+++ b" / "etc").write_text("y\n")
    assert b"\n+++ b\n" not in changed(*states)
    assert b"\n+++ b/etc" not in changed(*states)
