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
    assert {"root", "kernel", "user namespaces", "cgroups", "OCI runtime", *checks.TOOLS} <= names
    assert ({"layers", "DNS", "packet filter"} <= names) == (os.geteuid() == 0)


def test_people_read_each_check_and_the_level_in_force(command: Atoll) -> None:
    shown = command("doctor").stdout.decode()
    assert "isolation level in force: " in shown
    assert "kernel" in shown
