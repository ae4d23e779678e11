from typing import Any

import pytest

from atoll.errors import InvalidSandboxIdError, ValidationFailedError
from atoll.wire import ids


@pytest.mark.parametrize("id", ["a", "A", "my-box", "a.b_c-d", "0", "x" * 63, "_", ".a"])
def test_ids_of_the_rules_are_taken(id: str) -> None:
    assert ids.check_sandbox_id(id) == id


@pytest.mark.parametrize(
    "id",
    ["", "-a", "a-", "x" * 64, "www", "WWW", "Api", "a/b", "a b", "a\n", "é", "..", ".", "a\0b"],
)
def test_ids_that_break_a_rule_are_refused(id: str) -> None:
    with pytest.raises(InvalidSandboxIdError) as caught:
        ids.check_sandbox_id(id)
    assert caught.value.suggestion


def test_a_refused_id_is_quoted_only_in_part() -> None:
    with pytest.raises(InvalidSandboxIdError) as caught:
        ids.check_sandbox_id("x" * 10_000)
    assert len(caught.value.message) < 200


@pytest.mark.parametrize("name", ["", "-a", "a-", "a.b", "x" * 64, "../x"])
def test_namespaces_are_checked(name: str) -> None:
    assert ids.check_namespace("Sandbox") == "Sandbox"
    with pytest.raises(ValidationFailedError):
        ids.check_namespace(name)


@pytest.mark.parametrize("id", ["", "x" * 129, "a b", "a/b"])
def test_operation_ids_are_checked(id: str) -> None:
    assert ids.check_operation_id("0af:1.2_3-4") == "0af:1.2_3-4"
    with pytest.raises(ValidationFailedError):
        ids.check_operation_id(id)


def test_session_ids_follow_the_rule_of_the_session_header() -> None:
    assert ids.check_session("a.B_c-1") == "a.B_c-1"
    for wrong in ("", "a b", "a/b", "a" * 129, "é"):
        with pytest.raises(ValidationFailedError):
            ids.check_session(wrong)


@pytest.mark.parametrize("wrong", [7, None, b"box", ["box"]])
def test_what_is_no_text_is_no_name(wrong: Any) -> None:
    with pytest.raises(InvalidSandboxIdError, match=type(wrong).__name__):
        ids.check_sandbox_id(wrong)
    for check in (ids.check_namespace, ids.check_session, ids.check_process_id):
        with pytest.raises(ValidationFailedError, match=type(wrong).__name__):
            check(wrong)


@pytest.mark.parametrize(
    ("id", "expected"),
    [
        ("box", True),
        ("a-b", True),
        ("x" * 40, True),
        ("x" * 41, False),
        ("Box", False),
        ("a.b", False),
    ],
)
def test_previews_need_short_lower_case_ids(id: str, expected: bool) -> None:
    assert ids.is_previewable(id) is expected


@pytest.mark.parametrize(
    ("id", "expected"), [("My_Box.1", "my-box-1"), ("__", "sandbox"), ("a", "a")]
)
def test_host_names_are_dns_labels(id: str, expected: str) -> None:
    assert ids.hostname(id) == expected
