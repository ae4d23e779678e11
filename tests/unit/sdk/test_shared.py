"""Addresses, requests, answers, errors and waiting times, without I/O."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll import errors
from atoll.sdk import _shared
from atoll.wire import files, ops, process, sandbox
from atoll.wire.base import Done, Empty, Request

BOX = {"namespace": "Sandbox", "id": "a.b"}


@pytest.fixture(autouse=True)
def _as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users have other places, whoever runs the tests."""
    monkeypatch.setattr("os.geteuid", lambda: 0)


@pytest.mark.parametrize(
    ("url", "environment", "shown", "remote"),
    [
        (None, {}, "unix:///var/lib/atoll/engine.sock", False),
        (None, {"ATOLL_URL": "http://10.0.0.1:8787"}, "http://10.0.0.1:8787", True),
        (None, {"ATOLL_STATE_DIR": "/srv/a"}, "unix:///srv/a/engine.sock", False),
        (None, {"ATOLL_URL": "http://h", "ATOLL_STATE_DIR": "/srv/a"}, "http://h", True),
        ("unix:///run/x.sock", {"ATOLL_URL": "http://h"}, "unix:///run/x.sock", False),
        ("unix:/run/x.sock", {}, "unix:///run/x.sock", False),
        ("http://localhost:8787/", {}, "http://localhost:8787", False),
        ("http://[::1]:8787", {}, "http://[::1]:8787", False),
        ("https://host", {}, "https://host", True),
    ],
)
def test_the_address_is_what_is_given_then_the_variable_then_the_local_socket(
    url: str | None, environment: dict[str, str], shown: str, remote: bool
) -> None:
    endpoint = _shared.find_endpoint(url, None, environment)
    assert (endpoint.shown, endpoint.remote) == (shown, remote)


@pytest.mark.parametrize(
    "url",
    ["host:8787", "http://[", "http://h:99999", "ftp://h", "unix://h/x", "unix:x", "http://", "x"],
)
def test_an_address_that_is_none_is_refused_with_the_ways_to_write_one(url: str) -> None:
    with pytest.raises(errors.InvalidConfigError, match="unix:///path"):
        _shared.find_endpoint(url, None, {})


def test_an_address_that_is_no_text_is_a_typed_error() -> None:
    wrong: Any = 5
    for url, key in ((wrong, None), (None, wrong)):
        with pytest.raises(errors.InvalidConfigError, match="not int"):
            _shared.find_endpoint(url, key, {})


@pytest.mark.parametrize("key", ["key\n", "k\u00e9y", "\0"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(errors.InvalidConfigError, match="line break") as caught:
        _shared.find_endpoint(None, key, {})
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        (process.ExecRequest(command="x", cwd=5), "cwd"),  # type: ignore[arg-type]
        (process.ExecRequest(command="x", env={"A": 5}), "env"),  # type: ignore[dict-item]
        (process.ExecRequest(command="x", open_stdin="no"), "open_stdin"),  # type: ignore[arg-type]
        (ops.ReadFile(path=Path("/x")), "Path"),  # type: ignore[arg-type]
        (ops.ReadFile(path="x", offset="3"), "offset"),  # type: ignore[arg-type]
        (ops.ReadFile(path=b"/x"), "path"),  # type: ignore[arg-type]
        (process.ExecRequest(command="x", cwd=bytearray(b"/")), "cwd"),  # type: ignore[arg-type]
        (process.ExecRequest(command="\ud800"), "surrogate"),
        (ops.ReadFile(path="\ud800"), "surrogate"),
        (ops.ReadFile(path="x", offset="\ud800"), "surrogate"),  # type: ignore[arg-type]
        (ops.ReadFile(path="x" * 70_000), "16384"),
        (ops.ReadFile(path=timedelta(1)), "path"),  # type: ignore[arg-type]
        (process.ExecRequest(command="x", cwd=datetime.now(UTC)), "cwd"),  # type: ignore[arg-type]
    ],
)
def test_a_field_of_the_wrong_type_is_named_before_it_is_sent(
    request_: Request, named: str
) -> None:
    op: Any = ops.EXEC if isinstance(request_, process.ExecRequest) else ops.READ_FILE
    with pytest.raises(errors.ValidationFailedError, match=named):
        _shared.build_call(op, BOX, request_)


def test_the_key_is_never_part_of_what_is_printed() -> None:
    endpoint = _shared.find_endpoint(None, None, {"ATOLL_API_KEY": "s3cret"})
    assert endpoint.api_key == "s3cret"
    assert "s3cret" not in repr(endpoint)
    endpoint = _shared.find_endpoint("https://me:s3cret@host:1", None, {})
    assert endpoint.shown == "https://host:1"


def test_the_state_directory_is_what_is_given_then_the_variable_then_the_file() -> None:
    config = '[storage]\nstate_dir = "/srv/from-file"\n'
    variable = {"ATOLL_STATE_DIR": "/srv/from-variable"}
    assert _shared.state_directory("/srv/given", config, variable) == Path("/srv/given")
    assert _shared.state_directory(None, config, variable) == Path("/srv/from-variable")
    long = {"ATOLL_STORAGE_STATE_DIR": "/srv/from-long"}
    assert _shared.state_directory(None, config, long) == Path("/srv/from-long")
    assert _shared.state_directory(None, config, {}) == Path("/srv/from-file")
    assert _shared.state_directory(None, "", {}) == Path("/var/lib/atoll")
    with pytest.raises(errors.InvalidConfigError):
        _shared.state_directory(None, "= nonsense", {})


def test_the_configuration_of_the_host_says_where_its_engine_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "atoll.toml"
    monkeypatch.setattr(_shared, "CONFIG_FILE", file)
    assert _shared.read_config(None, {}) == ""
    file.write_text('[storage]\nstate_dir = "/srv/host"\n')
    assert _shared.find_endpoint(None, None, {}).shown == "unix:///srv/host/engine.sock"
    other = tmp_path / "other.toml"
    other.write_text('[storage]\nstate_dir = "/srv/other"\n')
    named = {"ATOLL_CONFIG": str(other)}
    assert _shared.find_endpoint(None, None, named).shown == "unix:///srv/other/engine.sock"
    file.write_text("= nonsense")
    assert _shared.find_endpoint("http://h", None, {}).shown == "http://h"
    with pytest.raises(errors.InvalidConfigError):
        _shared.find_endpoint(None, None, {})


def test_the_end_of_a_log_is_told_or_that_there_is_none() -> None:
    assert _shared.last_lines(b"x" * 9000 + b"the end\n").endswith("the end")
    assert _shared.last_lines(b"") == "it ended without a word"


def test_a_unary_call_has_a_json_body_and_a_key() -> None:
    call = _shared.build_call(ops.MKDIR, BOX, files.MkdirRequest(path="/x y", recursive=True))
    assert (call.method, call.path) == ("POST", "/v2/namespaces/Sandbox/sandboxes/a.b/files/mkdir")
    assert msgspec.json.decode(call.body or b"") == {"path": "/x y", "recursive": True}
    assert len(call.headers["idempotency-key"]) == 32
    assert call.headers["accept"] == "application/json"


def test_each_call_gets_a_key_of_its_own_unless_it_brings_one() -> None:
    request = process.ExecRequest(command="true")
    first, second = (_shared.build_call(ops.EXEC, BOX, request) for _ in range(2))
    assert first.headers["idempotency-key"] != second.headers["idempotency-key"]
    mine = _shared.build_call(ops.EXEC, BOX, request, key="k")
    assert mine.headers["idempotency-key"] == "k"
    assert mine.headers["accept"] == "application/vnd.atoll.frames"


def test_a_read_has_its_fields_in_the_query_and_no_key() -> None:
    request = files.ListRequest(path="/a&b=c/ü", recursive=True, limit=5)
    call = _shared.build_call(ops.LIST_FILES, BOX, request)
    assert call.path.endswith("/files/list?path=%2Fa%26b%3Dc%2F%C3%BC&recursive=true&limit=5")
    assert call.body is None
    assert "idempotency-key" not in call.headers


def test_a_field_without_a_value_is_left_out_of_a_query() -> None:
    class Odd(Request, frozen=True, kw_only=True):
        x: int | None = 1

    call = _shared.build_call(ops.Op("odd", "GET", "/x", Odd, Done), {}, Odd(x=None))
    assert call.path == "/x"


def test_a_name_that_is_not_utf8_keeps_its_bytes_in_a_query() -> None:
    call = _shared.build_call(ops.STAT, BOX, files.PathRequest(path="/\udcff"))
    assert call.path.endswith("?path=%2F%FF")


def test_an_upload_has_its_fields_in_the_query_because_the_body_is_raw() -> None:
    call = _shared.build_call(ops.WRITE_FILE, BOX, ops.WriteFile(path="x", mode=0o755))
    assert call.path.endswith("/files?path=x&mode=493")
    assert call.headers["content-type"] == "application/octet-stream"


def test_nothing_in_a_placeholder_can_change_the_path() -> None:
    call = _shared.build_call(ops.INFO, BOX | {"id": "../x?y#z%"}, Empty())
    assert call.path.endswith("/sandboxes/..%2Fx%3Fy%23z%25")


def test_an_answer_becomes_its_struct_and_unknown_fields_are_ignored() -> None:
    answer = b'{"path": "/x", "exists": true, "timestamp": "2026-01-01T00:00:00Z", "new": 1}'
    assert _shared.read_answer(ops.EXISTS, answer).exists is True


def test_an_answer_of_something_else_is_not_taken_for_a_result() -> None:
    with pytest.raises(errors.VersionMismatchError, match="something else listening"):
        _shared.read_answer(ops.EXISTS, b"<html>")
    with pytest.raises(errors.VersionMismatchError):
        _shared.read_metadata(ops.READ_FILE, {})


def test_metadata_of_a_download_is_in_its_header() -> None:
    header = b'{"path":"/x","size":3,"mimeType":"t","isBinary":false,"encoding":"utf-8","etag":"e"}'
    meta = _shared.read_metadata(ops.READ_FILE, {"atoll-result": header.decode()})
    assert meta.size == 3


def test_an_error_answer_becomes_its_class_with_all_it_says() -> None:
    body = msgspec.json.encode(
        errors.FileNotFoundError("no /x", context={"path": "/x"}, request_id="r1").to_wire()
    )
    error = _shared.read_error(404, {}, body)
    assert isinstance(error, errors.FileNotFoundError)
    assert (error.context, error.request_id) == ({"path": "/x"}, "r1")


def test_headers_of_an_error_answer_fill_what_the_body_leaves_out() -> None:
    body = msgspec.json.encode(errors.ContainerNotReadyError("not yet").to_wire())
    error = _shared.read_error(503, {"retry-after": "2", "x-request-id": "r2"}, body)
    assert (error.retry_after, error.request_id) == (2.0, "r2")


@pytest.mark.parametrize("body", [b"", b"<html>Bad Gateway", b"[1]", b'{"detail": "x"}', b"\xff"])
def test_an_error_of_something_else_says_so(body: bytes) -> None:
    error = _shared.read_error(502, {}, body)
    assert isinstance(error, errors.VersionMismatchError)
    assert "HTTP 502" in str(error)


def test_versions_that_are_apart_say_which_side_to_upgrade() -> None:
    _shared.check_version(sandbox.Version(version="0.1", api=2, engine_id="e"))
    for api, side in ((1, "upgrade the engine"), (3, "upgrade the client")):
        with pytest.raises(errors.VersionMismatchError, match=side):
            _shared.check_version(sandbox.Version(version="9", api=api, engine_id="e"))


def test_an_unreachable_engine_is_named_with_a_way_to_start_one() -> None:
    error = _shared.unreachable(_shared.Endpoint("http://engine", "/run/x.sock"), "refused")
    assert isinstance(error, ConnectionError)
    assert "unix:///run/x.sock" in str(error)
    assert "atoll serve" in str(error)


@given(st.floats(0, 1), st.floats(0, 60))
def test_waiting_times_grow_with_jitter_and_end_at_the_deadline(random: float, span: float) -> None:
    backoff, now, waits = _shared.Backoff(span, lambda: random), 0.0, []
    while (wait := backoff.wait(now)) is not None:
        assert 0 < wait <= _shared.Backoff.LARGEST
        waits.append(wait)
        now += wait
    assert now <= span + 1e-6
    full = waits[:-1]
    assert full == sorted(full)


def test_the_engines_own_waiting_time_is_respected_within_the_deadline() -> None:
    backoff = _shared.Backoff(10.0, lambda: 1.0)
    assert backoff.wait(0.0, retry_after=3.0) == 3.0
    assert backoff.wait(9.0, retry_after=3.0) == 1.0
    assert backoff.wait(10.0) is None


@pytest.mark.parametrize(
    ("state", "code", "word"),
    [
        ("created", None, "stopped"),
        ("stopped", None, "stopped"),
        ("stopped", 0, "stopped"),
        ("stopped", 1, "stopped_with_code"),
        ("starting", None, "starting"),
        ("running", None, "healthy"),
        ("frozen", None, "frozen"),
        ("destroyed", None, "destroyed"),
    ],
)
def test_states_are_told_in_the_words_of_0_12(state: str, code: int | None, word: str) -> None:
    assert _shared.state_word(info(state=sandbox.State(state), exit_code=code)) == word


def info(**fields: Any) -> sandbox.SandboxInfo:
    defaults: dict[str, Any] = {
        "id": "x",
        "namespace": "Sandbox",
        "state": sandbox.State.RUNNING,
        "generation": 1,
        "image": "atoll/base",
        "instance_type": "lite",
        "isolation": "container",
        "runtime": "runc",
        "limits": sandbox.Limits(memory=1, cpu=1, disk=1, pids=1),
        "wanted": sandbox.SandboxOptions(),
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    return sandbox.SandboxInfo(**defaults | fields)


def test_a_lost_request_says_that_its_outcome_is_not_known() -> None:
    error = _shared.lost("mkdir", "reset")
    assert isinstance(error, errors.OperationInterruptedError)
    assert error.context == {"operation": "mkdir"}
    assert "not known" in str(error)
