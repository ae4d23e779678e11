import pytest

from atoll.runtime.bwrap import program


@pytest.mark.parametrize("told", ["bubblewrap 0.5.0", "bubblewrap 0.11.0", "bubblewrap 1.0"])
def test_a_version_that_is_new_enough_is_used(told: str) -> None:
    assert program.objections(0o755, told) is None


@pytest.mark.parametrize(
    ("mode", "told", "why"),
    [
        (0o4755, "bubblewrap 0.11.0", "set-user-id"),
        (0o755, "bubblewrap 0.4.1", "needed"),
        (0o755, "cannot be run: Exec format error", "version"),
        (0o755, "", "version"),
    ],
)
def test_every_other_one_is_refused_with_its_reason(mode: int, told: str, why: str) -> None:
    assert why in str(program.objections(mode, told))
