import random
import subprocess
import time
from pathlib import Path

import pytest

from atoll.storage.textdiff import MAX_EDITS, hunks


def diff(before: bytes, now: bytes) -> bytes:
    return b"".join(hunks(before, now))


def applied(before: bytes, patch: bytes) -> bytes:
    """What a reader of the format makes of it."""
    old, new, at = before.splitlines(keepends=True), [], 0
    old = [line + b"\n" for line in before.split(b"\n")[:-1]]
    if not before.endswith(b"\n") and before:
        old.append(before.split(b"\n")[-1])
    lines = patch.split(b"\n")[:-1]
    for number, line in enumerate(lines):
        if line.startswith(b"@@"):
            start, count = map(int, line.split()[1][1:].split(b","))
            start -= 1 if count else 0
            new += old[at:start]
            at = start
        elif line.startswith(b"\\"):
            continue
        else:
            cut = number + 1 < len(lines) and lines[number + 1].startswith(b"\\")
            text = line[1:] + (b"" if cut else b"\n")
            if line[:1] in b" -":
                assert old[at] == text
                at += 1
            if line[:1] in b" +":
                new.append(text)
    return b"".join(new + old[at:])


def test_a_change_is_told_with_its_surroundings() -> None:
    before = b"".join(b"%d\n" % n for n in range(20))
    assert diff(before, before.replace(b"10\n", b"ten\n")) == (
        b"@@ -8,7 +8,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n"
    )


def test_changes_far_apart_are_hunks_of_their_own() -> None:
    before = b"".join(b"%d\n" % n for n in range(40))
    now = before.replace(b"\n5\n", b"\n").replace(b"\n30\n", b"\n30\nmore\n")
    assert diff(before, now).count(b"@@ -") == 2
    assert applied(before, diff(before, now)) == now


def test_the_last_line_may_lack_its_newline() -> None:
    assert diff(b"a\nb", b"a\nb\n") == (
        b"@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n"
    )
    assert diff(b"", b"x") == b"@@ -0,0 +1,1 @@\n+x\n\\ No newline at end of file\n"
    assert diff(b"x\n", b"") == b"@@ -1,1 +0,0 @@\n-x\n"
    assert diff(b"same", b"same") == b""


@pytest.mark.parametrize("seed", range(50))
def test_it_always_leads_from_one_text_to_the_other(seed: int) -> None:
    chance = random.Random(seed)
    alphabet = [b"a\n", b"b\n", b"c\r\n", b"\n", b"\x0c\n", b"d\x85\n"]
    before = b"".join(chance.choices(alphabet, k=chance.randrange(40)))
    lines = before.split(b"\n")
    for _ in range(chance.randrange(8)):
        at = chance.randrange(len(lines))
        lines[at : at + chance.randrange(3)] = chance.choices([b"x", b"a", b"-", b"+y"], k=2)
    now = b"\n".join(lines)
    assert applied(before, diff(before, now)) == now


def test_a_patch_program_understands_it(tmp_path: Path) -> None:
    before = b"".join(b"line %d\n" % n for n in range(100))
    now = before.replace(b"line 7\n", b"").replace(b"line 50\n", b"line 50\nnew") + b"end"
    (tmp_path / "f").write_bytes(before)
    patch = b"--- a/f\n+++ b/f\n" + diff(before, now)
    subprocess.run(["git", "apply", "-"], input=patch, cwd=tmp_path, check=True)
    assert (tmp_path / "f").read_bytes() == now


def test_texts_with_nothing_in_common_have_an_end() -> None:
    before = b"".join(b"%d\n" % n for n in range(20_000))
    now = b"".join(b"x%d\n" % n for n in range(20_000))
    began = time.monotonic()
    assert applied(before, diff(before, now)) == now
    assert time.monotonic() - began < 20
    assert MAX_EDITS < 20_000
