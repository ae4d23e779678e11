"""Options of the whole test run."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("atoll")
    group.addoption(
        "--all-clients",
        action="store_true",
        help="run every conformance case by every client, not only a sample",
    )
    group.addoption(
        "--level",
        choices=("auto", "container", "fake", "fake-tcp"),
        default="auto",
        help="isolation level of the conformance suite; auto: container where that is possible",
    )
