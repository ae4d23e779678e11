"""The secrets by which an engine is known to its agents: made from one key, kept nowhere else.

Every replica of an engine has the key and so reaches every agent, also one that it did not start.
"""

import base64
import hmac
import secrets

from atoll.runtime.kubernetes import api
from atoll.runtime.kubernetes.api import Api, ApiError

SECRET = "atoll-agents"  # noqa: S105  # a name
"""Name of the Secret that holds the key."""


def token(key: bytes, host_ref: str) -> str:
    """Return what every HEADER to the agent of the start *host_ref* carries."""
    return hmac.digest(key, b"agent\0" + host_ref.encode(), "sha256").hex()


async def shared_key(cluster: Api, namespace: str) -> bytes:
    """Return the key of this namespace; the first engine to ask makes it.

    Raises:
        ApiError: it can be neither read nor made.
    """
    made = base64.b64encode(secrets.token_bytes(32)).decode()
    wanted = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "labels": {"app.kubernetes.io/managed-by": "atoll"}},
        "data": {"key": made},
    }
    found = await cluster.get(api.path(namespace, "secrets", SECRET))
    while found is None:
        try:
            found = await cluster.create(api.path(namespace, "secrets"), wanted)
        except ApiError as error:
            if not error.conflict:
                raise
            found = await cluster.get(api.path(namespace, "secrets", SECRET))
    return base64.b64decode(found["data"]["key"])
