from typing import Any

import pytest

from atoll.errors import ContainerUnavailableError, ImageNotFoundError
from atoll.runtime.kubernetes import status

RUNNING = {"name": "sandbox", "image": "i", "state": {"running": {}}}
ENDED = {"name": "sandbox", "image": "i", "state": {"terminated": {"exitCode": 0}}}


def pod(phase: str = "Running", *containers: Any, **more: Any) -> dict[str, Any]:
    deleted = {"deletionTimestamp": "2030-01-01T00:00:00Z"} if more.pop("deleted", False) else {}
    return {
        "metadata": {"name": "p", **deleted},
        "status": {
            "phase": phase, "podIP": "10.0.0.9", "containerStatuses": list(containers), **more
        },
    }  # fmt: skip


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    told = {"reason": reason, "message": message}
    return {"name": "sandbox", "image": "a/b:1", "state": {"waiting": told}}


def test_a_pod_has_an_address_only_while_its_sandbox_runs() -> None:
    assert status.address(pod("Running", RUNNING)) == "10.0.0.9"
    for other in (
        None,
        pod("Pending", waiting("ContainerCreating")),
        pod("Running", ENDED),
        pod("Succeeded", ENDED),
        pod("Running", RUNNING, deleted=True),
        pod("Running", RUNNING, podIP=None),
    ):
        assert status.address(other) is None


def test_a_pod_has_stopped_only_when_its_node_says_so() -> None:
    """A node that is cut off says nothing, and its Pod may still run."""
    assert status.stopped(None)
    assert status.stopped(pod("Running", ENDED, deleted=True))
    assert status.stopped(pod("Succeeded", ENDED))
    assert not status.stopped(pod("Running", RUNNING, deleted=True))
    assert not status.stopped(pod("Pending", deleted=True))


@pytest.mark.parametrize("reason", ["ErrImageNeverPull", "InvalidImageName"])
def test_an_image_that_can_never_be_had_fails_at_once(reason: str) -> None:
    failure = status.failure(pod("Pending", waiting(reason)))
    assert isinstance(failure, ImageNotFoundError)
    assert failure.context["image"] == "a/b:1"


def test_a_pull_that_is_tried_again_is_no_failure_until_time_is_up() -> None:
    pulling = pod("Pending", waiting("ImagePullBackOff", "no such host"))
    assert status.failure(pulling) is None
    late = status.late(pulling, 30)
    assert isinstance(late, ImageNotFoundError)
    assert "no such host" in str(late)


def test_a_cluster_without_room_is_told_as_such_and_may_be_tried_again() -> None:
    condition = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes: cpu"}
    late = status.late(pod("Pending", conditions=[condition]), 30)
    assert isinstance(late, ContainerUnavailableError)
    assert late.context["reason"] == "capacity"
    assert late.retryable
    assert "0/3 nodes" in str(late)


def test_a_container_that_ended_tells_its_last_words() -> None:
    end = {"exitCode": 127, "reason": "Error", "message": "no loader"}
    failed = pod("Failed", {"name": "sandbox", "image": "i", "state": {"terminated": end}})
    failure = status.failure(failed)
    assert failure is not None
    assert "127" in str(failure)
    assert "no loader" in str(failure)


def test_a_pod_nobody_has_seen_is_no_failure_yet() -> None:
    assert status.failure(None) is None
    assert "did not show" in str(status.late(None, 3))
