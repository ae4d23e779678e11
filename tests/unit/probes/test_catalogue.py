import importlib
import re
from pathlib import Path

import pytest

from atoll.probes.catalogue import PROBES, Probe, chosen


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.function)
def test_every_row_names_a_function_that_says_which_class_it_is(probe: Probe) -> None:
    module, _, name = probe.function.partition(".")
    side = "inside" if probe.inside else "outside"
    function = getattr(importlib.import_module(f"atoll.probes.{side}.{module}"), name)
    assert str(probe.number) in (function.__doc__ or "").partition(":")[0] or probe.number == 9


SECURITY = Path(__file__).parents[2] / "security"
SHOWN: dict[str, tuple[str, ...]] = {
    "test_container.py::test_a_probe_finds_what_was_taken_away": (
        "boundary.agent_is_untouchable",
        "boundary.descriptors",
        "boundary.read_only_mounts",
        "boundary.schedule_of_the_agent",
        "boundary.secrets",
        "kernel.address_families",
        "kernel.cgroup_escape",
        "kernel.devices",
        "kernel.host_limits",
        "kernel.masked_paths",
        "kernel.nested_namespaces",
        "kernel.risky_calls",
        "kernel.status",
        "kernel.terminal_injection",
        "network.spoofing",
    ),
    "test_container.py::test_a_socket_of_the_host_is_noticed": ("boundary.sockets_of_the_host",),
    "test_container.py::test_an_agent_that_root_inside_owns_is_noticed": (
        "boundary.runtime_binary",
    ),
    "test_container.py::test_an_agent_with_a_handler_for_signals_is_noticed": ("boundary.signals",),
    "test_network.py::test_a_gap_of_the_filter_is_noticed": (
        "network.east_west",
        "network.metadata",
        "network.names_as_a_way_out",
        "network.ways_round_a_list",
    ),
    "test_outside.py::test_a_fault_of_the_engine_and_a_silence_are_noticed": (
        "agents.silent_agents",
    ),
    "test_outside.py::test_a_folder_of_the_host_that_is_inside_is_noticed": ("files.links",),
    "test_outside.py::test_a_key_that_opens_every_namespace_is_noticed": ("callers.tenants",),
    "test_outside.py::test_a_mount_of_the_whole_bucket_is_noticed": ("buckets.boundary",),
    "test_outside.py::test_a_preview_that_anybody_reaches_is_noticed": ("previews.previews",),
    "test_outside.py::test_a_shell_that_runs_what_it_is_given_is_noticed": ("callers.injection",),
    "test_outside.py::test_a_larger_volume_is_noticed": ("files.limit_of_a_volume",),
    "test_outside.py::test_a_volume_that_is_not_read_only_is_noticed": ("files.read_only_volumes",),
    "test_outside.py::test_an_archive_that_gets_out_is_noticed": (
        "files.archive_members",
        "files.target_swap",
    ),
    "test_outside.py::test_an_attack_on_oneself_is_noticed": ("exhaustion.neighbours",),
    "test_outside.py::test_an_engine_that_takes_any_value_is_noticed": (
        "callers.against_the_host",
    ),
    "test_outside.py::test_an_engine_that_trusts_its_agents_is_noticed": ("agents.hostile_agents",),
    "test_outside.py::test_an_image_that_changes_is_noticed": ("files.image_unchanged",),
    "test_outside.py::test_forks_that_are_one_are_noticed": ("copies.forks",),
    "test_outside.py::test_marks_in_a_volume_that_both_write_are_noticed": ("copies.shared_state",),
}
"""Test that shows probes to fail → the probes."""


def test_each_probe_is_shown_to_fail() -> None:
    """A probe that cannot fail is worthless."""
    shown = [function for functions in SHOWN.values() for function in functions]
    assert sorted(shown) == sorted(probe.function for probe in PROBES)
    assert all(probe.weakened for probe in PROBES)


@pytest.mark.parametrize(("test", "functions"), SHOWN.items(), ids=lambda each: str(each)[:60])
def test_the_test_that_shows_it_is_there(test: str, functions: tuple[str, ...]) -> None:
    file, _, name = test.partition("::")
    text = (SECURITY / file).read_text(encoding="utf-8")
    assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE)
    for function in functions:
        module, _, probe = function.partition(".")
        assert probe in text or f"{module}._judged" in text


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
