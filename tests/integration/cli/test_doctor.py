"""``atoll doctor`` on the host of the test run, whatever it is."""

import json
import os

from atoll.cli import checks
from integration.cli.conftest import Atoll


def test_the_report_is_complete_and_the_exit_code_follows_it(command: Atoll) -> None:
    done = command("doctor", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == (0 if report["isolation"] else 1)
    names = {check["name"] for check in report["checks"]}
    of_root = {"root", "cgroups", "OCI runtime", "DNS", "packet filter", *checks.TOOLS}
    of_users = {"user", "bubblewrap", "limits", "network", "images"}
    assert {"kernel", "user namespaces", "layers"} <= names
    assert (of_users if os.geteuid() else of_root) <= names


def test_people_read_each_check_and_the_level_in_force(command: Atoll) -> None:
    shown = command("doctor").stdout.decode()
    assert "isolation level in force: " in shown
    assert "kernel" in shown
