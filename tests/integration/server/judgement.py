"""Hooks of schemathesis, which loads this file: what of its findings no OpenAPI document can tell it.

A name is a sandbox, a key names one call: the document says so in words, but its schemas and links
have no place for either.
"""

import re
import secrets
from typing import Any

import schemathesis
from schemathesis.core.failures import AcceptedNegativeData, Failure
from schemathesis.generation.meta import TestPhase
from schemathesis.openapi.checks import UseAfterFree

BOX = re.compile(r"DELETE /v2/namespaces/[^/]+/sandboxes/[^/]+")

KEY = "Idempotency-Key"

since: list[str] = []
"""Names of the calls since a sandbox was deleted."""


@schemathesis.check
def no_fault_of_the_engine(_: Any, response: Any, __: Any) -> None:
    """What fails in a sandbox has a code of its own, also where its status is 500."""
    if response.status_code >= 500:
        assert response.json()["code"] != "INTERNAL_ERROR"


@schemathesis.hook
def before_call(_: Any, case: Any, __: dict[str, Any]) -> None:
    """Give each link a key of its own: what the answer to an earlier one tells of may be gone."""
    headers = case.headers or {}
    linked = case.meta is not None and case.meta.phase.name is TestPhase.STATEFUL
    if linked and re.fullmatch(r"[A-Za-z0-9._:-]{1,128}", str(headers.get(KEY, ""))):
        headers[KEY] = secrets.token_hex(8)


@schemathesis.hook
def after_call(_: Any, case: Any, response: Any) -> None:
    """Take note of the calls since a sandbox was deleted."""
    called = case.operation.definition.raw["operationId"]
    if called == "destroy_sandbox" and response.status_code < 300:
        since.clear()
    else:
        since.append(case.operation.label)


@schemathesis.hook
def filter_failure(_: Any, failure: Failure, __: Any, response: Any) -> bool:
    """Return whether a finding is one."""
    if isinstance(failure, UseAfterFree):
        return not (BOX.fullmatch(failure.free) and (made_again() or is_empty(response)))
    if isinstance(failure, AcceptedNegativeData):
        # What a link fills in takes the place of what was wrong, and the case is right again.
        return "Invalid component: positive test case" not in failure.message
    return True


def made_again() -> bool:
    """Whether a call before this one may have made the sandbox anew."""
    return len(since) > 1


def is_empty(response: Any) -> bool:
    """Whether an answer tells of nothing: no list has an entry, no field a value."""
    found = response.json()
    return isinstance(found, dict) and not any(found.values())
