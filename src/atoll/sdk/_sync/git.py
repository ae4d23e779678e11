"""Checkouts of git repositories into a sandbox."""

from atoll.sdk import _arguments
from atoll.sdk._sync.target import Target
from atoll.wire import ops
from atoll.wire.base import Duration
from atoll.wire.git import GitCheckout, GitCheckoutRequest

_MARGIN = 60.0
"""Seconds an answer may take beyond the clone: a sandbox that has to start, and git's clean-up."""


class Git(Target):
    """Git calls of a sandbox or session."""

    def git_checkout(
        self,
        url: str,
        *,
        branch: str | None = None,
        target_dir: str | None = None,
        depth: int | None = None,
        clone_timeout: Duration | None = "10m",
    ) -> GitCheckout:
        """Clone a repository inside the sandbox, by the image's own git.

        Args:
            url: http, https, ssh or git. Credentials in it (``https://user:token@host/…``) are
                given to git in memory, for this host and this clone only: they are in no argument,
                file, log or message, and not in the clone's ``.git/config``.
            branch: a branch or tag instead of the repository's default branch.
            target_dir: where to; its default is the repository's name in the session's directory.
            depth: so many commits of history only.
            clone_timeout: when to end it; None: never.

        Raises:
            InvalidGitUrlError: the URL cannot be cloned.
            ValidationFailedError: the branch, directory, depth or time limit is malformed.
            GitAuthFailedError: the server refused the credentials, or wants some.
            GitRepositoryNotFoundError: it knows no such repository.
            GitBranchNotFoundError: the repository has no such branch.
            GitNetworkError: it could not be reached.
            FileExistsError: the target directory is not empty.
            TimeoutError: the time was over; nothing is left of the clone.
            GitCloneFailedError: anything else git complained about.
        """
        limit = _arguments.time_limit(clone_timeout)
        request = GitCheckoutRequest(
            url=url,
            branch=branch,
            target_dir=target_dir,
            depth=depth,
            clone_timeout_ms=limit,
            session=self._session,
        )
        patience = None if limit is None else limit / 1000 + _MARGIN
        return self._call(ops.GIT_CHECKOUT, request, timeout=patience)
