from typing import Any

import pytest

from atoll.cli import checks_cluster as checks
from atoll.cli.checks import Verdict
from atoll.cluster_settings import ClusterSettings
from atoll.runtime.kubernetes.trial import Outcome

OK, WARNING, FAILED = Verdict.OK, Verdict.WARNING, Verdict.FAILED


@pytest.mark.parametrize(
    ("told", "verdict"),
    [
        ("v1.19.9", FAILED),
        ("v1.20.2", OK),
        ("v1.24.0", WARNING),
        ("v1.28.0", OK),
        ("v1.31.2+k3s1", OK),
        ("v1.37.0-gke.100", OK),
        ("v1.38.0", WARNING),
        ("v2.0.0", WARNING),
    ],
)
def test_versions_that_nobody_tried_are_said_to_be_so(told: str, verdict: Verdict) -> None:
    assert checks.version(told).verdict is verdict


def test_every_right_that_is_missing_is_named() -> None:
    assert checks.rights([], "n").verdict is OK
    found = checks.rights(["create pods", "list secrets"], "n")
    assert found.verdict is FAILED
    assert "create pods, list secrets" in found.seen


@pytest.mark.parametrize(
    ("present", "needed", "verdict"),
    [(True, True, OK), (True, False, OK), (False, False, OK), (False, True, FAILED)],
)
def test_custom_resources_are_needed_by_replicas(
    *, present: bool, needed: bool, verdict: Verdict
) -> None:
    assert checks.resources(present, needed=needed).verdict is verdict


@pytest.mark.parametrize(
    ("present", "settings", "verdict"),
    [
        ({"gvisor"}, {"runtime_class": "gvisor"}, OK),
        ({"gvisor"}, {"runtime_class": "kata"}, FAILED),
        ({"gvisor"}, {"runtime_classes": {"kata": "kata-qemu"}}, FAILED),
        ({"gvisor"}, {}, WARNING),
        (set(), {}, WARNING),
        (None, {"runtime_class": "gvisor"}, WARNING),
    ],
)
def test_a_runtime_class_that_is_named_must_be_there(
    present: set[str] | None, settings: dict[str, Any], verdict: Verdict
) -> None:
    assert checks.runtime_classes(present, ClusterSettings(**settings)).verdict is verdict


@pytest.mark.parametrize(
    ("present", "settings", "verdict"),
    [
        ({"local": True}, {}, OK),
        ({"local": False}, {}, FAILED),
        ({"local": False}, {"storage_class": "local"}, OK),
        ({"local": True}, {"storage_class": "fast"}, FAILED),
        ({}, {}, FAILED),
        ({}, {"persist": ""}, WARNING),
        (None, {}, WARNING),
    ],
)
def test_files_need_a_class_that_is_there(
    present: dict[str, bool] | None, settings: dict[str, Any], verdict: Verdict
) -> None:
    assert checks.storage(present, ClusterSettings(**settings)).verdict is verdict


@pytest.mark.parametrize(
    ("found", "relied_on", "verdict"),
    [
        (Outcome.ENFORCED, True, OK),
        (Outcome.ENFORCED, False, WARNING),
        (Outcome.OPEN, True, FAILED),
        (Outcome.OPEN, False, WARNING),
        (Outcome.UNREACHABLE, True, WARNING),
        ("no node has room", True, WARNING),
    ],
)
def test_policies_that_are_relied_on_must_be_enforced(
    found: Outcome | str, *, relied_on: bool, verdict: Verdict
) -> None:
    assert checks.policies(found, ClusterSettings(enforces_policies=relied_on)).verdict is verdict


def test_what_fails_says_what_to_do() -> None:
    failed = [
        checks.version("v1.19.0"),
        checks.rights(["get pods"], "n"),
        checks.resources(present=False, needed=True),
        checks.runtime_classes(set(), ClusterSettings(runtime_class="x")),
        checks.storage({}, ClusterSettings()),
        checks.policies(Outcome.OPEN, ClusterSettings()),
    ]
    assert all(check.verdict is FAILED and check.advice for check in failed)
