import re
from pathlib import Path

import pytest

from atoll.runtime.oci import elf

LOADER = Path("/lib64/ld-linux-x86-64.so.2")


def test_the_loader_of_an_executable_is_found() -> None:
    name = elf.interpreter(Path("/bin/sh").read_bytes())
    assert name
    assert Path(name).exists()


def test_a_shared_library_asks_for_no_loader() -> None:
    libc = next(Path("/lib").glob("*-linux-gnu*/libz.so.1"), None) or LOADER
    assert elf.interpreter(libc.read_bytes()) is None


@pytest.mark.parametrize("image", [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + bytes(60)])
def test_what_is_no_64_bit_executable_is_refused(image: bytes) -> None:
    with pytest.raises(ValueError, match="ELF"):
        elf.interpreter(image)


def test_a_sealed_loader_knows_no_file_of_the_system_it_runs_in() -> None:
    sealed = elf.seal_loader(LOADER.read_bytes())
    assert len(sealed) == LOADER.stat().st_size
    assert b"\0/etc/" not in sealed
    assert not re.search(rb"\0/(usr/)?lib[^\0]*/\0", sealed)


def test_replacements_keep_their_length_and_lie_below_sys() -> None:
    image = b"x\0/lib/\0/usr/lib/x86_64-linux-gnu/\0/etc/ld.so.preload\0/lib/x/y.so\0"
    sealed = elf.seal_loader(image).split(b"\0")
    assert sealed[0] == b"x"
    assert sealed[1] == b"/sys/"
    assert [len(a) for a in sealed] == [len(b) for b in image.split(b"\0")]
    assert sealed[2].startswith(b"/sys/")
    assert sealed[2].endswith(b"/")
    assert sealed[3].startswith(b"/sys/-")
    assert sealed[4] == b"/lib/x/y.so"


def test_another_libc_is_refused_rather_than_left_open() -> None:
    with pytest.raises(ValueError, match="glibc"):
        elf.seal_loader(b"/etc/ld-musl-x86_64.path\0")
