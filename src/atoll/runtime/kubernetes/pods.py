"""The Pods of one namespace that have a label, as last heard of."""

from atoll.runtime.kubernetes import api
from atoll.runtime.kubernetes.api import Api
from atoll.runtime.kubernetes.mirror import Mirror


class Pods(Mirror):
    """See `Mirror`.

    Args:
        cluster: the API.
        namespace: of the cluster.
        selector: label selector.
    """

    def __init__(self, cluster: Api, namespace: str, selector: str) -> None:
        super().__init__(cluster, api.path(namespace, "pods"), selector)
