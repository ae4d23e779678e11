"""ripgrep chooses files: with it, without it or with a false one the answer is the same."""

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from atoll.agent.files import finding, ripgrep
from integration.agent.client import alive, eventually
from integration.agent.files_calls import NOBODY, Call, call

real = pytest.mark.skipif(shutil.which("rg") is None, reason="no ripgrep here")

CONTENTS = {
    "a.txt": "first\r\nöö needle\n", "a-b/c": "needle", "a/b/c.py": "x = 'Needle7'\n",
    "a.d/.hidden": "needle7", ".git/config": "needle", "sub/.git/x": "needle", "sub/g/.git": "needle",
    ".gitignore": "*\n", ".ignore": "*\n", "-rf": "needle", "new\nline": "needle", "no": "nothing",
    "utf16": "\ufeffn", "z/ü/é": "größe needle\n",
}  # fmt: skip
TEXTS = [("needle", False), ("n", False), ("größe", False), ("-rf", False), ("\n", False),
         (r"\bneedle\d", True), ("(?i)NEEDLE", True), (r"e\s+x|needle7", True), ("nothere", False),
         ("first\r", False), (r"\d", True), ("ö n", False)]  # fmt: skip


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in CONTENTS.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-16-le") if name == "utf16" else text.encode())
    (tmp_path / "tree/binary").write_bytes(b"needle\0")
    (tmp_path / "tree/late").write_bytes(b"needle\n" + b"x\n" * 100_000 + b"\0")
    (tmp_path / "tree/invalid").write_bytes(b"\xff\xfe needle \xc3\n")
    (tmp_path / "tree/link").symlink_to("a.txt")
    (tmp_path / "tree/out").symlink_to("/")
    os.mkfifo(tmp_path / "tree/fifo")
    return tmp_path / "tree"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tree counts as large."""
    monkeypatch.setattr(finding, "LARGE_TREE", 1)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: None) -> Path:
    """Where a test puts a program in place of ripgrep."""
    monkeypatch.setattr(ripgrep, "DIRECTORIES", (os.fsencode(tmp_path / "bin"), b"/bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin/rg"


def put(program: Path, script: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def find(tree: Path, text: str = "needle", **fields: Any) -> Any:
    return call("find_in_files", path=str(tree), text=text, **fields).reply


@real
@pytest.mark.parametrize(("text", "regex"), TEXTS)
def test_the_answer_is_that_of_our_own_scan(
    tree: Path, text: str, regex: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = find(tree, text, regex=regex)
    monkeypatch.setattr(finding, "LARGE_TREE", 1)
    assert find(tree, text, regex=regex) == own
    assert find(tree, text, regex=regex, limit=1) == {
        "matches": own["matches"][:1], "truncated": len(own["matches"]) > 1
    }  # fmt: skip


@real
def test_it_is_what_chooses(tree: Path, program: Path) -> None:
    """The real program, and a list that is shorter than the truth: it must be seen to be used."""
    put(program, f"pwd > {program}.cwd; printf './a.txt\\0'")
    assert [Path(m["path"]).name for m in find(tree)["matches"]] == ["-rf", "a.txt"]
    assert Path(f"{program}.cwd").read_text().strip() == str(tree)


@real
def test_no_configuration_of_a_user_changes_the_answer(
    tree: Path, asked: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text("--glob=!*.txt\n")
    own = find(tree)
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / "config"))
    assert find(tree) == own


FALSE = {
    "fails": "printf 'a.txt\\0'; exit 2",
    "is killed": "printf 'a.txt\\0'; kill -9 $$",
    "climbs": "printf '../secret\\0'",
    "is absolute": "printf '/etc/passwd\\0'",
    "never ends": "while :; do printf './a.txt\\0'; done",
    "prints one endless name": "cat /dev/zero | tr '\\0' x",
}


@pytest.mark.parametrize("script", FALSE.values(), ids=FALSE)
def test_a_false_program_changes_nothing(tree: Path, program: Path, script: str) -> None:
    (tree.parent / "secret").write_text("needle")
    own = find(tree)
    put(program, script)
    assert find(tree) == own


def test_a_program_that_hangs_is_ended_and_not_waited_for(
    tree: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = find(tree)
    monkeypatch.setattr(ripgrep, "PATIENCE", 0.3)
    put(program, f"echo $$ > {program}.pid; exec sleep 100")
    assert find(tree) == own
    assert not alive(int(Path(f"{program}.pid").read_text()))


def test_it_ends_with_its_caller(tree: Path, program: Path) -> None:
    put(program, f"echo $$ > {program}.new; mv {program}.new {program}.pid; exec sleep 100")
    running = Call("find_in_files", path=str(tree), text="needle")
    eventually(Path(f"{program}.pid").exists)
    started = time.monotonic()
    running.finish()
    assert time.monotonic() - started < 20
    assert not alive(int(Path(f"{program}.pid").read_text()))


def test_it_gets_no_connection_and_no_variable(tree: Path, program: Path) -> None:
    put(program, f"ls /proc/self/fd > {program}.fds; env > {program}.env")
    find(tree)
    assert Path(f"{program}.fds").read_text().split() == ["0", "1", "2", "3"]  # 3 is what ls reads
    names = {line.partition("=")[0] for line in Path(f"{program}.env").read_text().splitlines()}
    assert names == {"PATH", "PWD"}  # the shell's own


@pytest.mark.skipif(os.getuid() != 0, reason="needs a second user")
def test_what_a_user_may_not_read_is_left_out(tree: Path, asked: None) -> None:
    (tree / "closed").mkdir(mode=0o700)
    (tree / "closed/f").write_text("needle")
    (tree / "no").write_text("needle")
    (tree / "no").chmod(0)
    for path in (tree, *tree.parents):
        if path.stat().st_uid == os.getuid() and path != Path("/tmp") and len(path.parts) > 2:
            path.chmod(0o755)
    names = {Path(m["path"]).name for m in find(tree, uid=NOBODY)["matches"]}
    assert "a.txt" in names
    assert not names & {"f", "no"}


@pytest.mark.skipif(os.getuid() != 0, reason="mounts")
def test_a_tree_with_a_mount_in_it_is_walked_by_us(tree: Path, program: Path) -> None:
    """What blocks there blocks who opens it without O_NONBLOCK."""
    put(program, "printf './a.txt\\0'")
    (tree / "mounted here").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", tree / "mounted here"], check=True)
    try:
        (tree / "mounted here/f").write_text("needle")
        assert "f" in {Path(m["path"]).name for m in find(tree)["matches"]}
    finally:
        subprocess.run(["umount", tree / "mounted here"], check=True)
