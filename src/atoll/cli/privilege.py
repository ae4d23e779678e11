"""What to do when a verb lacks the rights it needs: one message, whichever path was refused first."""

from collections.abc import Iterable
from pathlib import Path

from atoll.errors import RuntimeNotAvailableError, SandboxError

_SUGGESTION = (
    "run it as root, which level container needs; or leave ATOLL_STATE_DIR and ATOLL_CACHE_DIR out:"
    " a user without root has directories of his own, and level bwrap; `atoll doctor` tells more"
)


def explained(
    error: OSError | SandboxError, folders: Iterable[Path], uid: int
) -> RuntimeNotAvailableError | None:
    """Return the error to tell instead of *error*, None to leave it as it is.

    Args:
        error: what ended a verb.
        folders: the state and the cache directory.
        uid: of this process.
    """
    if uid == 0 or not isinstance(error, PermissionError):
        return None
    named = error.context.get("path") if isinstance(error, SandboxError) else error.filename
    path = Path(str(named))
    if not any(path == folder or folder in path.parents for folder in folders):
        return None
    return needs_root(f"this user (uid {uid}) may not use {path}", uid)


def needs_root(what: str, uid: int) -> RuntimeNotAvailableError:
    """Return the error that says *what* is refused to a user who is not root."""
    return RuntimeNotAvailableError(what, context={"uid": uid}, suggestion=_SUGGESTION)
