from pathlib import Path
from typing import Any

import pytest

from atoll.errors import RuntimeNotAvailableError
from atoll.runtime.oci import cli
from atoll.runtime.oci.cli import Candidate, Choice, choose, entering, run_argv

FEATURES: dict[str, Any] = {
    "linux": {
        "namespaces": ["cgroup", "ipc", "mount", "network", "pid", "user", "uts"],
        "seccomp": {"operators": ["SCMP_CMP_GE", "SCMP_CMP_MASKED_EQ"]},
    }
}


def installed(name: str, features: dict[str, Any] | None = FEATURES) -> Candidate:
    return Candidate(name=name, path=Path("/usr/bin", name), features=features)


def test_the_preferred_one_is_taken_where_it_works() -> None:
    choice = choose([installed("crun"), installed("runc")], "auto", "v2")
    assert (choice.name, choice.path) == ("crun", Path("/usr/bin/crun"))
    assert choice.reason == "preferred, and works here"


def test_crun_is_passed_over_on_hybrid_cgroups_and_the_reason_is_said() -> None:
    choice = choose([installed("crun"), installed("runc")], "auto", "hybrid")
    assert choice.name == "runc"
    assert "crun refuses hybrid cgroups" in choice.reason


def test_the_reason_says_that_what_is_preferred_is_not_installed() -> None:
    choice = choose([installed("runc")], "auto", "v2")
    assert (choice.name, choice.reason) == ("runc", "first that works here (crun is not installed)")


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("#!/bin/sh\necho a library is missing >&2; exit 127\n", "a library is missing"),
        ("#!/nonexistent\n", ""),
    ],
)
async def test_what_does_not_start_is_passed_over_and_the_reason_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, told: str
) -> None:
    """It is installed, but a library of it is not."""
    (tmp_path / "crun").write_text(script)
    (tmp_path / "crun").chmod(0o755)
    monkeypatch.setattr(cli, "_PATH", str(tmp_path))
    (found,) = await cli.probe()
    choice = choose([found, installed("runc")], "auto", "v2")
    assert choice.name == "runc"
    assert choice.reason.startswith("first that works here (crun does not start: ")
    assert told in choice.reason


async def test_what_starts_and_cannot_tell_its_features_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As crun of Debian 12 answers: "unknown command features"."""
    (tmp_path / "crun").write_text('#!/bin/sh\n[ "$1" = --version ]\n')
    (tmp_path / "crun").chmod(0o755)
    monkeypatch.setattr(cli, "_PATH", str(tmp_path))
    (found,) = await cli.probe()
    assert (found.features, found.fault) == (None, None)


def test_crun_works_on_plain_v1() -> None:
    assert choose([installed("crun")], "auto", "v1").name == "crun"


def test_a_wanted_runtime_is_never_replaced_by_another() -> None:
    with pytest.raises(RuntimeNotAvailableError) as caught:
        choose([installed("crun"), installed("runc")], "crun", "hybrid")
    assert set(caught.value.context["rejected"]) == {"crun"}


def test_a_wanted_runtime_is_taken_before_the_preferred_one() -> None:
    choice = choose([installed("crun"), installed("runc")], "runc", "v2")
    assert (choice.name, choice.reason) == ("runc", "chosen by the setting runtime.oci")


def test_a_runtime_without_what_isolation_needs_is_refused() -> None:
    """A runtime built without seccomp starts containers all the same, without a filter."""
    bare = {"linux": {"namespaces": ["pid"], "seccomp": {"operators": []}}}
    with pytest.raises(RuntimeNotAvailableError, match="user"):
        choose([installed("runc", bare)], "auto", "v1")


@pytest.mark.parametrize("features", [{}, {"linux": None}, {"linux": {"seccomp": None}}])
def test_a_runtime_that_tells_of_no_features_has_none(features: dict[str, Any]) -> None:
    with pytest.raises(RuntimeNotAvailableError):
        choose([installed("runc", features)], "auto", "v1")


def test_a_runtime_that_cannot_be_asked_is_trusted() -> None:
    assert choose([installed("crun", None)], "auto", "v2").name == "crun"


def test_nothing_installed_says_what_to_install() -> None:
    with pytest.raises(RuntimeNotAvailableError, match="none is installed") as caught:
        choose([], "auto", "v2")
    assert "runc" in str(caught.value.suggestion)


def test_the_command_line_hands_over_as_many_descriptors_as_are_there() -> None:
    argv = run_argv(
        Choice(name="runc", path=Path("/usr/sbin/runc"), reason=""),
        root=Path("/r"), log=Path("/l"), bundle=Path("/b"), pid_file=Path("/p"), name="x", fds=6,
    )  # fmt: skip
    assert argv == [
        "/usr/sbin/runc", "--root", "/r", "--log", "/l", "--log-format", "json",
        "run", "--detach", "--bundle", "/b", "--pid-file", "/p", "--preserve-fds", "6", "x",
    ]  # fmt: skip


def test_a_network_namespace_is_entered_before_the_runtime_starts() -> None:
    program, *rest = entering(Path("/run/netns/x"))
    assert Path(program).name == "nsenter"
    assert rest == ["--net=/run/netns/x", "--"]
    assert entering(None) == []
