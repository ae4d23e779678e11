"""Options of the whole test run, and what holds for every test of it."""

import os
import re
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

import leftovers

# A CI run judges the change that is before it: the same examples each time. `make fuzz` searches.
settings.register_profile("ci", derandomize=True)
if os.environ.get("ATOLL_CI"):
    settings.load_profile("ci")

TESTS = Path(__file__).parent

TOOL_MISSING = re.compile(r"missing|not installed|\bno \S+ here\b|has no \S+$")
"""Reasons of skips that tools/setup.sh is there to prevent."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("atoll")
    group.addoption(
        "--all-clients",
        action="store_true",
        help="run every conformance case by every client, not only a sample",
    )
    group.addoption(
        "--level",
        choices=("auto", "container", "gvisor", "bwrap", "kubernetes", "fake", "fake-tcp"),
        default="auto",
        help="isolation level of the conformance suite; auto: container where that is possible",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Run the tests in a child, and fail when they leave processes behind."""
    if config.option.collectonly or config.option.help or config.option.version:
        return None
    if hasattr(config, "workerinput"):  # one of several that share the work: watched with them all
        return None
    return leftovers.watched()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs root where there is none."""
    for item in items:
        if TESTS / "e2e" in item.path.parents:
            item.add_marker(pytest.mark.e2e)
        if os.geteuid() != 0 and item.get_closest_marker("e2e"):
            item.add_marker(pytest.mark.skip(reason="needs root"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In a CI run a tool that is missing is a failure: nobody reads the list of skips there."""
    report = yield
    if report.skipped and os.environ.get("ATOLL_CI") and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if TOOL_MISSING.search(reason):
            report.outcome = "failed"
            report.longrepr = f"ATOLL_CI is set and a test was skipped: {reason}"
    return report
