"""A request never becomes an option or a script, and credentials leave the URL."""

from typing import Any

import pytest

from atoll import errors
from atoll.engine.commands import git
from atoll.wire.git import GitCheckoutRequest

TOKEN = "s3cr3t-T0ken"


def plan(url: str = "https://h.example/o/repo.git", **options: object) -> git.Clone:
    return git.plan(GitCheckoutRequest(url=url, **options))  # type: ignore[arg-type]


def test_values_stand_behind_the_separator_or_in_their_options_word() -> None:
    clone = plan(branch="v1;touch", depth=3, target_dir="--upload-pack=x")
    assert clone.argv == [
        "git", "clone", "--quiet", "--branch=v1;touch", "--depth=3", "--",
        "https://h.example/o/repo.git", "--upload-pack=x",
    ]  # fmt: skip
    assert (clone.stdin, clone.secrets) == (b"", ())


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://h/o/repo.git", "repo"),
        ("http://127.0.0.1:8080/repo/", "repo"),
        ("ssh://git@h/repo.git", "repo"),
        ("git@h:owner/repo.git", "repo"),
        ("git://[::1]:9418/x.y", "x.y"),
        ("https://h/o/-x", "-x"),
    ],
)
def test_the_directory_is_named_after_the_repository(url: str, target: str) -> None:
    clone = plan(url)
    assert (clone.url, clone.target) == (url, target)


@pytest.mark.parametrize(
    "url",
    [
        "", "/srv/repo", "file:///srv/repo", "ext::sh -c touch% /tmp/p", "--upload-pack=touch /tmp/p",
        "https://", "https://h", "https://h/", "https://-oProxyCommand=x/r", "ssh://-oProxyCommand=x/r",
        "ssh://git:pw@h/r", "ssh://-x@h/r", "git@-h:r", "-git@h:r", "git@h:-r", "https://h/a b",
        "https://h/a\nb", "https://h/a\0b", "https://u:p%0aq@h/r", "https://u%00:p@h/r",
        "https://h/..", "https://h=x/r", "ftp://h/r", "javascript:x", "https://u@v@h/r",
    ],
)  # fmt: skip
def test_other_urls_are_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(errors.InvalidGitUrlError) as caught:
        plan(url)
    assert not url or url not in caught.value.message + str(caught.value.context)


@pytest.mark.parametrize(
    "branch",
    [
        "", "x;touch /tmp/p", "$(id) x", "--upload-pack=x", "-b", "a\nb", "a\0b", "a..b", "a@{1}",
        "a~1", "a^", "a:b", "a?", "a*", "a[b", "a\\b", "/a", "a/", "a//b", "a.", "a.lock", "x/.y",
        "a" * 256,
    ],
)  # fmt: skip
def test_what_cannot_be_a_branch_is_refused(branch: str) -> None:
    with pytest.raises(errors.ValidationFailedError):
        plan(branch=branch)


@pytest.mark.parametrize("branch", ["main", "feature/x-1", "v1.2.3", "Ünicode", "a;b", "$(id)"])
def test_what_can_be_a_branch_is_one_word(branch: str) -> None:
    assert f"--branch={branch}" in plan(branch=branch).argv


@pytest.mark.parametrize(
    "options",
    [{"depth": 0}, {"depth": -1}, {"depth": 1 << 31}, {"target_dir": ""}, {"target_dir": "a\0"},
     {"clone_timeout_ms": 0}],
)  # fmt: skip
def test_other_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(errors.ValidationFailedError):
        plan(**options)


@pytest.mark.parametrize(
    ("userinfo", "pipe"),
    [
        (f"user:{TOKEN}", f"username=user\npassword={TOKEN}\n"),
        (TOKEN, f"username={TOKEN}\npassword=\n"),
        (f":{TOKEN}", f"username=\npassword={TOKEN}\n"),
        (f"a%40b:{TOKEN}%2F%25", f"username=a@b\npassword={TOKEN}/%\n"),
    ],
)
def test_credentials_are_in_the_pipe_and_nowhere_else(userinfo: str, pipe: str) -> None:
    clone = plan(f"https://{userinfo}@h.example:8443/o/repo.git")
    assert clone.stdin == pipe.encode()
    assert clone.url == "https://h.example:8443/o/repo.git"
    assert TOKEN not in str((clone.argv, clone.env, clone.target))
    assert clone.argv[:3] == ["sh", "-c", 'exec 7<&0 </dev/null; exec git "$@"']
    assert any(word.startswith("credential.https://h.example:8443.helper=") for word in clone.argv)


@pytest.mark.parametrize(
    ("stderr", "kind"),
    [
        ("fatal: Authentication failed for 'https://h/r/'", errors.GitAuthFailedError),
        ("fatal: could not read Username for 'https://h': terminal prompts disabled",
         errors.GitAuthFailedError),
        ("fatal: unable to access 'https://h/r/': The requested URL returned error: 403",
         errors.GitAuthFailedError),
        ("git@h: Permission denied (publickey).\nfatal: Could not read from remote repository.",
         errors.GitAuthFailedError),
        ("fatal: repository 'https://h/r/' not found", errors.GitRepositoryNotFoundError),
        ("warning: x\nfatal: Remote branch nope not found in upstream origin",
         errors.GitBranchNotFoundError),
        ("fatal: unable to access 'https://h/': Could not resolve host: h", errors.GitNetworkError),
        ("fatal: unable to connect to 127.0.0.1:", errors.GitNetworkError),
        ("error: RPC failed; curl 18\nfatal: early EOF", errors.GitNetworkError),
        ("fatal: destination path 'x' already exists and is not an empty directory.",
         errors.FileExistsError),
        ("fatal: write error: No space left on device", errors.NoSpaceError),
        ("error: unable to write file a: Disk quota exceeded", errors.DiskQuotaExceededError),
        ("fatal: could not create work tree dir '/sys/x': Read-only file system",
         errors.ReadOnlyError),
        ("fatal: could not create work tree dir '/x': Permission denied",
         errors.PermissionDeniedError),
        ("warning: Clone succeeded, but checkout failed.", errors.GitCheckoutFailedError),
        ("something new", errors.GitCloneFailedError),
        ("", errors.GitCloneFailedError),
    ],
)  # fmt: skip
def test_failures_are_told_by_their_cause(stderr: str, kind: type[errors.SandboxError]) -> None:
    failure = git.failure(plan(), 128, stderr)
    assert type(failure) is kind
    assert failure.context["path"] == "repo"
    assert failure.message


def test_an_image_without_git_is_said() -> None:
    failure = git.failure(plan(), 127, "sh: 1: exec: git: not found")
    assert isinstance(failure, errors.CommandNotFoundError)
    assert "install git" in (failure.suggestion or "")


def test_no_message_shows_a_secret() -> None:
    clone = plan(f"https://git:{TOKEN}%2F@h/r")
    told = f"fatal: https://git:{TOKEN}%2F@h/r {TOKEN}%2F {TOKEN}/ github"
    failure = git.failure(clone, 128, told)
    assert TOKEN not in str(failure.to_wire())
    assert failure.message == "fatal: https://***h/r *** *** github"


def test_the_time_limit_is_told_with_what_to_do() -> None:
    assert "3 s" in git.timed_out(plan(), 3.0).message


@pytest.mark.parametrize(
    ("code", "stdout", "found"),
    [
        (0, "/w/a\nb\nabc\nmain\n", ("/w/a\nb", "abc", "main")),
        (0, "/w\nabc\nHEAD\n", ("/w", "abc", None)),
        (128, "/w\nHEAD\n", ("/w", None, None)),
        (128, "", ("repo", None, None)),
    ],
)
def test_what_was_cloned_is_read(
    code: int, stdout: str, found: tuple[str, str | None, str | None]
) -> None:
    assert git.read_inspection(plan(), code, stdout) == found
