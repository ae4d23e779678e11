"""Checkouts of git repositories on the wire."""

from datetime import datetime

import msgspec

from atoll.wire.base import Millis, Request, Result, Whole

CLONE_TIMEOUT_MS = 600_000
"""Default time limit of a clone: large histories take minutes, a dead host takes for ever."""


class GitCheckoutRequest(Request, frozen=True, kw_only=True):
    """Clone a repository. Credentials may stand in `url`; they go no further than to its host.

    `target_dir` is relative to the session's directory; its default is the repository's name.
    """

    url: str
    branch: str | None = None  # or a tag
    target_dir: str | None = None
    depth: Whole | None = None  # commits of history; None: all
    clone_timeout_ms: Millis | None = msgspec.field(default=CLONE_TIMEOUT_MS, name="cloneTimeout")
    session: str | None = None


class GitCheckout(Result, frozen=True, kw_only=True):
    """A repository was cloned.

    `branch` is None when a tag is checked out, `commit` when the repository is empty; `url` has no
    credentials.
    """

    success: bool = True
    url: str
    path: str
    branch: str | None = None
    commit: str | None = None
    timestamp: datetime
