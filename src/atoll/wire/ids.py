"""Which names sandboxes, namespaces, sessions, operations and processes may have. Pure.

Client and engine check with the same functions: a mistake costs no request, and an engine does not
rely on its clients.
"""

import re

from atoll.errors import InvalidSandboxIdError, ValidationFailedError
from atoll.wire import preview

RESERVED = frozenset({"www", "api", "admin", "root", "system", "cloudflare", "workers"})

SANDBOX = re.compile(r"[A-Za-z0-9_.](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9_.])?")
NAMESPACE = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
SESSION = re.compile(r"[A-Za-z0-9._-]{1,128}")
OPERATION = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_PREVIEWABLE = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")


def check_sandbox_id(id: str) -> str:
    """Return *id*.

    Raises:
        InvalidSandboxIdError: it breaks a rule; the message says which.
    """
    problem = _problem(id)
    if problem:
        raise InvalidSandboxIdError(
            f"{_shown(id)} cannot be a sandbox id: {problem}",
            context={"id": id[:80] if isinstance(id, str) else _shown(id)},
            suggestion="use 1 to 63 letters, digits, '-', '_' or '.'",
        )
    return id


def _problem(id: str) -> str | None:
    if not isinstance(id, str):
        return "it is not text"
    if not id:
        return "it is empty"
    if len(id) > 63:
        return f"it has {len(id)} characters, 63 is the most"
    if id.startswith("-") or id.endswith("-"):
        return "it starts or ends with a hyphen"
    if id.lower() in RESERVED:
        return "the name is reserved"
    if set(id) == {"."} or not SANDBOX.fullmatch(id):
        return "it has characters that are not allowed"
    return None


def check_namespace(name: str) -> str:
    """Return *name*; raise `ValidationFailedError` when it cannot be a namespace."""
    return _checked(name, NAMESPACE, "namespace", "1 to 63 letters, digits, '-' or '_'")


def check_session(id: str) -> str:
    """Return *id*; raise `ValidationFailedError` when it cannot be the id of a session."""
    return _checked(id, SESSION, "session id", "1 to 128 letters, digits, '.', '_' or '-'")


def check_operation_id(id: str) -> str:
    """Return *id*; raise `ValidationFailedError` when it cannot be an operation id."""
    return _checked(id, OPERATION, "operation id", "1 to 128 letters, digits, '.', '_', ':' or '-'")


def check_process_id(id: str) -> str:
    """Return *id*; raise `ValidationFailedError` when it cannot be the id of a process."""
    rule = "1 to 128 letters, digits, '.', '_', ':' or '-'"
    return _checked(id, OPERATION, "process id", rule)


def _checked(value: str, pattern: re.Pattern[str], what: str, rule: str) -> str:
    if isinstance(value, str) and pattern.fullmatch(value):
        return value
    raise ValidationFailedError(
        f"{_shown(value)} cannot be a {what}",
        context={"field": what},
        suggestion=f"use {rule}",
    )


def is_previewable(id: str) -> bool:
    """Whether a preview host name can hold *id* (lower case, short enough)."""
    return len(id) <= preview.MAX_ID and _PREVIEWABLE.fullmatch(id) is not None


def hostname(id: str) -> str:
    """Return the host name inside the sandbox: *id* as a DNS label."""
    return re.sub(r"[^a-z0-9-]", "-", id.lower()).strip("-") or "sandbox"


def _shown(value: object) -> str:
    if isinstance(value, str):
        return repr(value if len(value) <= 80 else value[:77] + "…")
    return f"a value of type {type(value).__name__}"
