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


def test_only_the_first_part_of_a_path_is_replaced_in_its_own_length() -> None:
    """Linkers let the string "locale" be the tail of "/usr/share/locale"."""
    image = b"x/usr/a\0/lib/\0/lib64/\0/usr/share/locale\0/etc/ld.so.preload\0/etcetera\0/bin/sh\0"
    assert elf.seal_loader(image) == (
        b"x/usr/a\0/sys/\0/sys///\0/sys/share/locale\0/sys/ld.so.preload\0/etcetera\0/bin/sh\0"
    )


def test_another_libc_is_refused_rather_than_left_open() -> None:
    with pytest.raises(ValueError, match="glibc"):
        elf.seal_loader(b"/etc/ld-musl-x86_64.path\0")
