"""A git clone inside a sandbox: what is run for a request, and what its failure means. Pure.

Nothing of a request is ever part of a script or an option: values are checked, and stand behind
``--`` or in the same word as their option. Credentials leave the URL here. They reach git by a
credential helper that reads them from an inherited pipe, once, and only for the host they were
given for (so not after a redirect): they are in no argument, environment, file or message.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

from atoll import errors
from atoll.errors import SandboxError
from atoll.wire.git import GitCheckoutRequest

_URL = re.compile(
    r"(?P<scheme>https?|ssh|git)://(?:(?P<user>[^/@\s]*)@)?"
    r"(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(?P<port>:\d{1,5})?(?P<path>/\S+)"
)
_SCP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*@[A-Za-z0-9][A-Za-z0-9.-]*:(?P<path>[^-\s][^\s]*)")
_REF = re.compile(r"(?!-|/|.*(?:\.\.|@\{|//|/\.|\.lock(?:/|$)|[./]$))[^\0- \x7f~^:?*\[\\]{1,255}")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")

_LAUNCH = 'exec 7<&0 </dev/null; exec git "$@"'
"""Moves the pipe with the credentials out of git's way. A constant: no value is part of it."""

_HELPER = '!f() { [ "$1" != get ] || while IFS= read -r l; do printf "%s\\n" "$l"; done <&7; }; f'
"""A credential helper of git: prints what is in the pipe, with what every shell has built in."""

_ENV: Mapping[str, str | None] = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "LC_ALL": "C",
    "LANGUAGE": None,
    "GIT_ALLOW_PROTOCOL": "http:https:ssh:git",
    # A trace may hold credentials, and what git prints is shown in errors.
    "GIT_TRACE": None,
    "GIT_TRACE_CURL": None,
    "GIT_TRACE_PACKET": None,
    "GIT_TRACE_REDACT": None,
    "GIT_CURL_VERBOSE": None,
    # Where they are set, git would work on another repository than the clone.
    "GIT_DIR": None,
    "GIT_WORK_TREE": None,
    "GIT_INDEX_FILE": None,
}

_HIDDEN = "***"


class Clone(NamedTuple):
    """What to run."""

    argv: list[str]
    env: dict[str, str | None]
    stdin: bytes  # of the credential helper; empty: there are no credentials
    url: str
    target: str
    secrets: tuple[str, ...]

    @property
    def inspect(self) -> list[str]:
        """The command that tells path, commit and branch of the clone, one a line."""
        return ["git", "-C", self.target, "rev-parse", "--show-toplevel", "HEAD",
                "--abbrev-ref", "HEAD"]  # fmt: skip


class _Source(NamedTuple):
    url: str
    path: str
    origin: str = ""  # what git compares hosts by
    user: bytes | None = None
    password: bytes = b""
    userinfo: str = ""  # both as they stood in the URL


def plan(request: GitCheckoutRequest) -> Clone:
    """Return what to run for *request*.

    Raises:
        InvalidGitUrlError: the URL is malformed or of another kind than http, https, ssh and git.
        ValidationFailedError: branch, directory, depth or time limit cannot be meant so.
    """
    source = _source(request.url)
    _check_options(request)
    target = _target(request.target_dir, source)
    options = [f"--branch={request.branch}"] if request.branch is not None else []
    options += [f"--depth={request.depth}"] if request.depth is not None else []
    clone = ["clone", "--quiet", *options, "--", source.url, target]
    if source.user is None:
        return Clone(["git", *clone], dict(_ENV), b"", source.url, target, ())
    helper = ["-c", "credential.helper=", "-c", f"credential.{source.origin}.helper={_HELPER}"]
    pipe = b"username=%s\npassword=%s\n" % (source.user, source.password)
    argv = ["sh", "-c", _LAUNCH, "git", *helper, *clone]
    return Clone(argv, dict(_ENV), pipe, source.url, target, _secrets(source))


def _secrets(source: _Source) -> tuple[str, ...]:
    """Return what no message may show, the longest first. A user without password is a token."""
    secret = source.password or source.user or b""
    quoted, userinfo = quote_from_bytes(secret, safe=""), f"{source.userinfo}@"
    return tuple(text for text in (userinfo, quoted, secret.decode(errors="replace")) if text)


def _source(url: str) -> _Source:
    if match := _SCP.fullmatch(url):
        return _Source(url, match["path"])
    match = _URL.fullmatch(url)
    if not match or any(ord(char) < 0x21 or ord(char) == 0x7F for char in url):
        raise _invalid_url("it is not an http, https, ssh or git URL of a repository")
    scheme, userinfo = match["scheme"], match["user"]
    origin = f"{scheme}://{match['host']}{match['port'] or ''}"
    if userinfo is None:
        return _Source(url, match["path"])
    if scheme in {"ssh", "git"}:
        if not _USER.fullmatch(userinfo):
            raise _invalid_url(f"{scheme} takes a plain user name and no password in the URL")
        return _Source(url, match["path"])
    user, _, password = userinfo.partition(":")
    decoded = [unquote_to_bytes(part) for part in (user, password)]
    if any(byte < 0x20 or byte == 0x7F for part in decoded for byte in part):
        raise _invalid_url("its credentials hold a control character")
    path: str = match["path"]
    return _Source(origin + path, path, origin, decoded[0], decoded[1], userinfo)


def _invalid_url(problem: str) -> errors.InvalidGitUrlError:
    # The URL itself is not repeated: it may hold credentials.
    return errors.InvalidGitUrlError(
        f"the URL cannot be cloned: {problem}",
        context={"field": "url"},
        suggestion="write https://host/owner/name.git, or git@host:owner/name.git",
    )


def _check_options(request: GitCheckoutRequest) -> None:
    if request.branch is not None and not _REF.fullmatch(request.branch):
        raise _wrong("branch", f"{request.branch!r} cannot be the name of a branch or tag")
    if request.depth is not None and not 1 <= request.depth < 1 << 31:
        raise _wrong("depth", "the depth is a number of commits, from 1 on")
    if request.clone_timeout_ms is not None and request.clone_timeout_ms <= 0:
        raise _wrong("clone_timeout", "a clone needs some time")


def _target(given: str | None, source: _Source) -> str:
    if given is None:
        name = source.path.rstrip("/").rpartition("/")[2].removesuffix(".git")
        if name in {"", ".", ".."}:
            raise _invalid_url("it names no repository")
        return name
    if not given or "\0" in given:
        raise _wrong("target_dir", "the target directory is empty or holds a NUL character")
    return given


def _wrong(field: str, problem: str) -> errors.ValidationFailedError:
    return errors.ValidationFailedError(problem, context={"field": field})


def scrub(text: str, secrets: tuple[str, ...]) -> str:
    """Return *text* without any of *secrets*."""
    for secret in secrets:
        text = text.replace(secret, _HIDDEN)
    return text


_FAILURES: Mapping[Callable[..., SandboxError], Sequence[str]] = {
    errors.NoSpaceError: ["No space left on device"],
    errors.DiskQuotaExceededError: ["Disk quota exceeded"],
    errors.FileExistsError: ["already exists and is not an empty directory"],
    errors.ReadOnlyError: ["Read-only file system"],
    errors.PermissionDeniedError: ["could not create (?:work tree|leading).*: Permission denied"],
    errors.GitCheckoutFailedError: ["Clone succeeded, but checkout failed", "unable to checkout"],
    errors.GitBranchNotFoundError: ["Remote branch .* not found"],
    errors.GitAuthFailedError: [
        "Authentication failed", "could not read (?:Username|Password)", r"Permission denied \(",
        "Host key verification failed", "Access denied", r"returned error: 40[13]\b",
    ],
    errors.GitRepositoryNotFoundError: [
        "[Rr]epository.* not found", "does not appear to be a git repository",
        "returned error: 404", "not exported", "is this a git repository",
    ],
    errors.GitNetworkError: [
        "Could not resolve", "unable to (?:connect|access|look up)", "Failed to connect",
        "Connection (?:refused|timed out|reset)", "unreachable", "RPC failed", "early EOF",
        "hung up", "certificate", r"returned error: \d{3}",
    ],
}  # fmt: skip
"""What it means → what git prints then, in its untranslated form; the first that matches."""


def failure(clone: Clone, exit_code: int, stderr: str) -> SandboxError:
    """Return the typed error of a clone that ended with *exit_code*."""
    told = scrub(stderr, clone.secrets).strip()[-2000:]
    context = {"url": clone.url, "path": clone.target, "exit_code": exit_code}
    if exit_code == 127:
        return no_git(clone)
    kind: Callable[..., SandboxError] = errors.GitCloneFailedError
    for meaning, patterns in _FAILURES.items():
        if re.search("|".join(patterns), told):
            kind = meaning
            break
    message = _complaint(told) or f"git clone ended with exit code {exit_code}"
    return kind(message, context=context | {"stderr": told})


def no_git(clone: Clone) -> SandboxError:
    """Return the error for an image without git."""
    return errors.CommandNotFoundError(
        "the image has no git",
        context={"command": "git", "url": clone.url},
        suggestion="install git in the image, or upload the files",
    )


def _complaint(told: str) -> str:
    """Return the line that tells most: the first ``fatal:`` one, else the last."""
    lines = told.splitlines()
    return next((line for line in lines if line.startswith("fatal:")), lines[-1] if lines else "")


def timed_out(clone: Clone, seconds: float) -> errors.TimeoutError:
    """Return the error of a clone whose time was over."""
    return errors.TimeoutError(
        f"git clone of {clone.url} reached its timeout and was ended after {seconds:g} s",
        context={"url": clone.url, "path": clone.target},
        suggestion="pass a longer clone_timeout, or depth=1 for less history",
    )


def read_inspection(
    clone: Clone, exit_code: int, stdout: str
) -> tuple[str, str | None, str | None]:
    """Return path, commit and branch from what `Clone.inspect` printed.

    An empty repository has a path only; of one where a tag is checked out the branch is HEAD.
    """
    lines = stdout.removesuffix("\n").split("\n")
    if exit_code == 0 and len(lines) >= 3:
        branch = None if lines[-1] == "HEAD" else lines[-1]
        return "\n".join(lines[:-2]), lines[-2], branch
    return (lines[0] or clone.target), None, None
