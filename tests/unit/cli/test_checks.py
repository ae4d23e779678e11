"""What doctor concludes from what it found."""

import pytest

from atoll.cli import checks
from atoll.cli.checks import Check, Verdict


@pytest.mark.parametrize(
    ("check", "verdict"),
    [
        (checks.root(0), "ok"),
        (checks.root(1000), "failed"),
        (checks.kernel("6.1.0-18-amd64"), "ok"),
        (checks.kernel("5.19.0"), "ok"),
        (checks.kernel("5.10.0-28-amd64"), "failed"),
        (checks.kernel("odd"), "failed"),
        (checks.user_namespaces(1000), "ok"),
        (checks.user_namespaces(0), "failed"),
        (checks.user_namespaces(None), "failed"),
        (checks.cgroups("v2", ["cpu", "memory", "pids"]), "ok"),
        (checks.cgroups("v1", ["cpu", "memory", "pids"]), "failed"),
        (checks.cgroups("hybrid", ["cpu", "memory", "pids", "freezer"]), "ok"),
        (checks.cgroups("v2", ["cpu", "pids"]), "failed"),
        (checks.runtime("runc", "first that works"), "ok"),
        (checks.runtime(None, "none is installed"), "failed"),
        (checks.storage("btrfs", None), "ok"),
        (checks.storage("ext4", None), "warning"),
        (checks.storage(None, "EPERM"), "failed"),
        (checks.packet_filter(None), "ok"),
        (checks.packet_filter("EPERM"), "failed"),
        (checks.dns(["192.0.2.53"]), "ok"),
        (checks.dns([]), "warning"),
        (checks.forwarding([], "let them"), "ok"),
        (checks.forwarding(["ip filter FORWARD"], "let them"), "warning"),
        (checks.tool("nft", "/usr/sbin/nft"), "ok"),
        (checks.tool("nft", None), "failed"),
        (checks.tool("buildah", None), "warning"),
        (checks.fuse(present=True), "ok"),
        (checks.fuse(present=False), "warning"),
        (checks.runtime(None, "there is none", needed=False), "warning"),
        (checks.gvisor(None, "runsc is not installed"), "warning"),
        (checks.gvisor(None, "runsc is not installed", needed=True), "failed"),
    ],
)
def test_each_check_ends_as_it_should_and_says_what_to_do(check: Check, verdict: str) -> None:
    assert check.verdict == verdict
    assert (check.advice is None) == (verdict == "ok")


def test_every_tool_names_the_package_that_has_it() -> None:
    for name, tool in checks.TOOLS.items():
        assert checks.tool(name, None).advice == f"apt-get install {tool.package}"


def test_one_failure_means_that_nothing_is_in_force() -> None:
    good, bad = checks.root(0), checks.root(1)
    warned = checks.tool("buildah", None)
    assert checks.report([good, warned], "container", "runc").isolation == "container"
    broken = checks.report([good, bad], "container", "runc")
    assert (broken.isolation, broken.runtime) == (None, None)
    assert broken.to_dict()["checks"][1]["verdict"] == Verdict.FAILED
