"""The kernel's process; what it does with code is in the test of the provisioner."""

import pytest

from atoll.jupyter import kernel


def test_a_sandbox_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        kernel.main(["-f", "nowhere.json"])
    assert "--sandbox" in capsys.readouterr().err
