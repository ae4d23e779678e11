import msgspec
import pytest

from atoll.cluster_settings import ClusterSettings
from atoll.load_settings import load


def test_a_cluster_is_named_by_variables_of_its_group() -> None:
    told = {"ATOLL_CLUSTER_NAMESPACE": "boxes", "ATOLL_CLUSTER_NODE_SELECTOR": '{"pool": "a"}'}
    found = load(environment=told).settings.cluster
    assert found == ClusterSettings(namespace="boxes", node_selector={"pool": "a"})


def test_a_port_that_is_none_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"agent_port": 0}, ClusterSettings)
