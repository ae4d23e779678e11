"""What an engine asks of a cluster's API: the manifest gives it these rights and no other. Pure.

All are in one namespace. None changes a Pod, enters it or reads its output: that is between engine
and agent.
"""

from typing import Final, NamedTuple


class Right(NamedTuple):
    """Verbs on one kind of object, and what for."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    purpose: str


_FOLLOWED: Final = ("create", "delete", "get", "list", "update", "watch")

ALONE: Final = (
    Right(
        "",
        "pods",
        ("create", "delete", "get", "list", "watch"),
        "one for each start of a sandbox",
    ),
    Right(
        "",
        "secrets",
        ("create", "delete", "get", "list"),
        "what an agent must know until it answered, and the key that tokens are made from",
    ),
    Right(
        "",
        "persistentvolumeclaims",
        ("create", "delete", "get", "list"),
        "the files of a sandbox",
    ),
    Right(
        "networking.k8s.io",
        "networkpolicies",
        ("create", "delete", "list", "update"),
        "who reaches a sandbox, and whom it reaches",
    ),
)
"""Everything that the one engine of a namespace may do."""

TOGETHER: Final = (
    Right("atoll.dev", "sandboxes", _FOLLOWED, "what is known of a sandbox"),
    Right("atoll.dev", "records", _FOLLOWED, "what else engines share"),
    Right("coordination.k8s.io", "leases", _FOLLOWED, "which engines are alive"),
)
"""What each of several engines may do besides."""


def needed(*, replicas: bool) -> tuple[Right, ...]:
    """Return the rights of an engine that is alone, or one of several."""
    return ALONE + TOGETHER if replicas else ALONE


def used(method: str, path: str, *, watch: bool = False) -> tuple[str, str, str]:
    """Return group, resource and verb of a request, as the cluster's authorizer reads it."""
    parts = path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    resource, *name = rest[2:] if rest[0] == "namespaces" and rest[2:] else rest
    if method == "GET":
        verb = "watch" if watch else "get" if name else "list"
    else:
        verb = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[method]
    return group, resource, verb
