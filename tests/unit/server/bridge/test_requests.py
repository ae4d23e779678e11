import pytest
from starlette.requests import Request

from atoll.errors import ValidationFailedError
from atoll.server.bridge.requests import checked_session, file_path, workspace_path


@pytest.mark.parametrize(
    ("given", "resolved"),
    [
        ("a", "/workspace/a"),
        ("./a//b/", "/workspace/a/b"),
        ("a/../b", "/workspace/b"),
        ("..workspace", "/workspace/..workspace"),
        (".", "/workspace"),
        ("", "/workspace"),
        ("/workspace", "/workspace"),
        ("/../workspace/a", "/workspace/a"),
        ("/tmp/../workspace/a b\n", "/workspace/a b\n"),
    ],
)
def test_paths_are_seen_from_the_workspace(given: str, resolved: str) -> None:
    assert workspace_path(given) == resolved


@pytest.mark.parametrize(
    "given", ["/", "/tmp", "..", "a/../..", "/workspace2", "/workspace/../etc"]
)
def test_paths_that_lead_out_are_forbidden(given: str) -> None:
    with pytest.raises(ValidationFailedError) as caught:
        workspace_path(given, "cwd")
    assert caught.value.wire_status == 403
    assert caught.value.message == "cwd must resolve to a location within /workspace"


def request(raw: bytes) -> Request:
    return Request({"type": "http", "raw_path": b"/v1/sandbox/x/file/" + raw, "headers": []})


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b"workspace/a%20b", "/workspace/a b"),
        (b"workspace/a%2fb?x=1", "/workspace/a/b"),
        (b"workspace/file/x", "/workspace/file/x"),
        (b"workspace/%C3%A4", "/workspace/ä"),
        (b"workspace/%25", "/workspace/%"),
    ],
)
def test_a_file_is_named_by_the_rest_of_the_path(raw: bytes, path: str) -> None:
    assert file_path(request(raw)) == path


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"", 400),
        (b"workspace/%ff", 400),
        (b"/etc/passwd", 403),
        (b"workspace/%2e%2e/etc/passwd", 403),
    ],
)
def test_files_outside_the_workspace_cannot_be_named(raw: bytes, status: int) -> None:
    with pytest.raises(ValidationFailedError) as caught:
        file_path(request(raw))
    assert caught.value.wire_status == status


@pytest.mark.parametrize("id", ["a" * 129, "a b", "../x", "ä", "a\n"])
def test_sessions_have_plain_names(id: str) -> None:
    with pytest.raises(ValidationFailedError):
        checked_session(id)
