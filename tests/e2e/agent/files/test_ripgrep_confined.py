"""A program of the image that a file call runs is as little trusted as a command of its user."""

import pytest

from e2e.runtime.boxes import Bench, Box

pytestmark = pytest.mark.e2e

REPORT = "cat /proc/self/status /proc/self/cgroup > /tmp/report-$(id -u); ls /proc/self/fd > /tmp/fds-$(id -u)"
NAMES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp",
         "Seccomp_filters", "Uid", "Gid", "Groups")  # fmt: skip


def _large_tree(box: Box, script: str) -> None:
    box.sh(
        f"""mkdir -p /workspace/t && cd /workspace/t && seq 2100 | xargs touch && echo needle > 7
        printf '#!/bin/sh\\n%s\\n' "{script}" > /usr/bin/rg && chmod 755 /usr/bin/rg"""
    )


@pytest.mark.parametrize("user", ["0:0", "1000:1000"])
async def test_it_has_what_a_command_has(bench: Bench, user: str) -> None:
    async with bench.running() as box:
        _large_tree(box, REPORT.replace("$", "\\$"))
        found = box.call("fs.find_in_files", path="/workspace/t", text="needle", user=user)
        assert [match["path"] for match in found["matches"]] == ["/workspace/t/7"]
        uid = user.partition(":")[0]
        own = box.sh("cat /proc/self/status /proc/self/cgroup", user=user).splitlines()
        its = box.sh(f"cat /tmp/report-{uid}").splitlines()
        wanted = [line for line in own if line.partition(":")[0] in NAMES or ":/" in line]
        assert len(wanted) > len(NAMES)
        assert set(wanted) - set(its) == set()
        assert box.sh(f"cat /tmp/fds-{uid}").split() == ["0", "1", "2", "3"]


async def test_one_that_hangs_and_forks_holds_up_no_other_call(bench: Bench) -> None:
    async with bench.running() as box:
        _large_tree(box, "while :; do sleep 100 & done")
        with box.connect() as waiting:
            waiting.header(op="fs.find_in_files", path="/workspace/t", text="needle")
            for _ in range(20):
                assert box.call("fs.exists", path="/workspace/t/7", user="0:0")["exists"]
        assert box.call("hello")["pid"] == 1
