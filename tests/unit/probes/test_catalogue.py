import importlib

import pytest

from atoll.probes.catalogue import PROBES, Probe, chosen


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.function)
def test_every_row_names_a_function_that_says_which_class_it_is(probe: Probe) -> None:
    module, _, name = probe.function.partition(".")
    side = "inside" if probe.inside else "outside"
    function = getattr(importlib.import_module(f"atoll.probes.{side}.{module}"), name)
    assert str(probe.number) in (function.__doc__ or "").partition(":")[0] or probe.number == 9


def test_names_are_told_apart() -> None:
    assert len({probe.name for probe in PROBES}) == len(PROBES)


def test_all_that_take_no_minutes_by_default() -> None:
    assert {p for p in PROBES if not p.slow} == set(chosen((), slow=False))
    assert chosen((), slow=True) == PROBES


def test_by_name_or_number() -> None:
    assert [probe.name for probe in chosen(("tenants", "25"), slow=False)] == [
        "tenants", "devices", "status",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="nonsense"):
        chosen(("nonsense", "1"), slow=False)
