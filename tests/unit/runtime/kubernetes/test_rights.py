import pytest

from atoll.runtime.kubernetes import api
from atoll.runtime.kubernetes.rights import needed, used

NETWORKS = "apis/networking.k8s.io/v1"


@pytest.mark.parametrize(
    ("method", "path", "watch", "expected"),
    [
        ("GET", api.path("n", "pods"), False, ("", "pods", "list")),
        ("GET", api.path("n", "pods"), True, ("", "pods", "watch")),
        ("GET", api.path("n", "secrets", "one"), False, ("", "secrets", "get")),
        ("GET", "/api/v1/nodes", False, ("", "nodes", "list")),
        ("GET", "/api/v1/namespaces/n", False, ("", "namespaces", "get")),
        ("POST", api.path("n", "pods"), False, ("", "pods", "create")),
        ("DELETE", api.path("n", "pods", "namespaces"), False, ("", "pods", "delete")),
        (
            "PUT",
            api.path("n", "networkpolicies", "one", group=NETWORKS),
            False,
            ("networking.k8s.io", "networkpolicies", "update"),
        ),
    ],
)
def test_a_request_needs_the_right_that_a_cluster_asks_for(
    method: str, path: str, *, watch: bool, expected: tuple[str, str, str]
) -> None:
    assert used(method, path, watch=watch) == expected


def test_no_right_is_listed_twice_and_none_is_of_all() -> None:
    every = needed(replicas=True)
    kinds = [(right.group, right.resource) for right in every]
    assert len(set(kinds)) == len(kinds)
    assert not any("*" in (*right.verbs, right.resource, right.group) for right in every)
    assert set(needed(replicas=False)) < set(every)
