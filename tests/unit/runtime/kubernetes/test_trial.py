from typing import Any

from kubernetes_validate import utils as schemas

from atoll.cluster_settings import ClusterSettings
from atoll.runtime.kubernetes import trial
from atoll.runtime.kubernetes.manifest import START_LABEL
from unit.runtime.kubernetes.test_manifest import FULL, VERSIONS


def test_what_is_tried_is_valid_in_every_supported_version() -> None:
    label = {trial.TRIAL_LABEL: "x-closed"}
    for version in (VERSIONS[0], VERSIONS[-1]):
        schemas.validate(trial.pod("x", label, "pass", FULL), version, strict=True)
        schemas.validate(trial.policy("x", label), version, strict=True)


def test_only_the_policy_of_the_trial_closes_a_pod_of_it() -> None:
    """Else the Pod that should get through would not."""
    label = {trial.TRIAL_LABEL: "x-closed"}
    assert START_LABEL not in trial.pod("x", label, "pass", ClusterSettings())["metadata"]["labels"]
    assert trial.policy("x", label)["spec"]["podSelector"]["matchLabels"] == label


def test_how_a_pod_ended_is_read_off_its_status() -> None:
    state = {"terminated": {"exitCode": trial.KEPT_OUT}}
    assert trial.exit_code({"status": {"containerStatuses": [{"state": state}]}}) == trial.KEPT_OUT
    running: dict[str, Any] = {"status": {"containerStatuses": [{"state": {"running": {}}}]}}
    assert trial.exit_code(running) is None
    assert trial.exit_code({}) is None


def test_a_pod_of_the_trial_can_do_nothing() -> None:
    made = trial.pod("x", {}, "pass", ClusterSettings())["spec"]
    (container,) = made["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": []}
    assert made["automountServiceAccountToken"] is False
