"""What a caller may pass, checked before any I/O."""

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import atoll
from atoll import errors
from atoll.sdk import _arguments
from atoll.sdk._results import ContainerTimeouts
from atoll.wire.sandbox import CustomInstance, SandboxOptions


def test_a_command_is_text_or_a_list_of_texts() -> None:
    assert _arguments.check_command("echo 'oops") == "echo 'oops"
    assert _arguments.check_command(("ls", "")) == ["ls", ""]
    wrong: Any
    for wrong in ("", "  \n", [], [""], "a\0b", ["a", "b\0"], ["a", 1], [b"a"], 5, None, b"ls", {}):
        with pytest.raises(errors.InvalidCommandError):
            _arguments.check_command(wrong)


def test_encodings_of_output_are_codecs_of_text_or_base64() -> None:
    for right in ("utf-8", "latin-1", "base64", "utf-16"):
        assert _arguments.check_encoding(right) == right
    for wrong in ("nonsense", "rot13", "hex", 5, None, "a\0"):
        with pytest.raises(errors.ValidationFailedError):
            _arguments.check_encoding(wrong)  # type: ignore[arg-type]


def test_a_file_is_wanted_as_text_bytes_or_a_stream() -> None:
    for right in (None, "bytes", "none", "base64", "latin-1"):
        _arguments.check_view(right)
    for wrong in ("klingon", 5, "hex"):
        with pytest.raises(errors.ValidationFailedError):
            _arguments.check_view(wrong)  # type: ignore[arg-type]


def test_content_is_anything_that_gives_bytes() -> None:
    for right in ("x", b"x", bytearray(b"x"), io.BytesIO(), ["x"], iter([b"x"])):
        _arguments.check_content("stdin", right)
    for wrong in (5, None, object()):
        with pytest.raises(errors.ValidationFailedError, match="stdin"):
            _arguments.check_content("stdin", wrong)


def test_variables_are_a_mapping() -> None:
    assert _arguments.mapping("env", None) == {}
    assert _arguments.mapping("env", {"A": None}) == {"A": None}
    for wrong in ("A=5", ["A"], 5, [("A", "5")]):
        with pytest.raises(errors.ValidationFailedError, match="env"):
            _arguments.mapping("env", wrong)  # type: ignore[arg-type]


def test_a_user_is_a_name_or_an_id() -> None:
    assert [_arguments.user(one) for one in (None, "www", 1000)] == [None, "www", "1000"]


@pytest.mark.parametrize(
    ("given_", "limit"),
    [(None, None), (1.5, 1500), ("5m", 300_000), (timedelta(seconds=2), 2000), (0.001, 1)],
)
def test_time_limits_become_milliseconds(given_: Any, limit: int | None) -> None:
    assert _arguments.time_limit(given_) == limit


@pytest.mark.parametrize("wrong", [0, 0.0, "0s", -1, "soon", float("inf"), float("nan"), [], "5 y"])
def test_a_time_limit_that_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(errors.ValidationFailedError):
        _arguments.time_limit(wrong)


def test_content_is_encoded_as_asked() -> None:
    assert _arguments.encode_content("é", None) == "é".encode()
    assert _arguments.encode_content("é", "latin-1") == b"\xe9"
    assert _arguments.encode_content("AAE=", "base64") == b"\x00\x01"
    assert _arguments.encode_content(b"AAE=", "base64") == b"\x00\x01"
    assert _arguments.encode_content(b"\xff", "utf-8") == b"\xff"
    assert _arguments.encode_content(bytearray(b"a"), None) == b"a"


@pytest.mark.parametrize(
    ("content", "encoding"),
    [("A", "base64"), ("é", "base64"), ("é", "ascii"), ("x", "nonsense"), ("\ud800", None)],
)
def test_content_that_is_not_in_its_encoding_is_refused(content: str, encoding: str | None) -> None:
    with pytest.raises(errors.ValidationFailedError):
        _arguments.encode_content(content, encoding)


def test_streamed_content_is_bytes_or_utf8() -> None:
    _arguments.check_streamed_encoding(None)
    with pytest.raises(errors.ValidationFailedError):
        _arguments.check_streamed_encoding("base64")


NOTHING = dict.fromkeys(
    [
        "sleep_after",
        "keep_alive",
        "sleep_mode",
        "enable_default_session",
        "instance_type",
        "image",
        "runtime",
        "env",
        "enable_internet",
        "labels",
        "ttl",
        "queue",
        "volumes",
        "package_cache",
    ]
)


def test_without_options_there_is_nothing_to_send() -> None:
    assert _arguments.sandbox_options(**NOTHING) is None


def test_options_that_were_given_are_sent_false_ones_too() -> None:
    options = _arguments.sandbox_options(
        **NOTHING
        | {"sleep_after": "10m", "ttl": 3, "keep_alive": False, "env": {"A": None}, "labels": {}}
    )
    assert options == SandboxOptions(
        sleep_after_ms=600_000,
        ttl_ms=3000,
        keep_alive=False,
        env={"A": None},
        secrets={},
        labels={},
    )


def test_a_size_of_ones_own_is_a_mapping_or_a_struct() -> None:
    wanted = CustomInstance(vcpu=1.5, memory_mib=512, disk_mb=1000)
    for size in (wanted, {"vcpu": 1.5, "memory_mib": 512, "disk_mb": 1000}):
        options = _arguments.sandbox_options(**NOTHING | {"instance_type": size})
        assert options is not None
        assert options.instance_type == wanted


@pytest.mark.parametrize(
    "wrong",
    [
        {"sleep_after": "soon"},
        {"queue": -1},
        {"keep_alive": "yes"},
        {"env": {"A": 1}},
        {"instance_type": {"vcpu": 1, "memory_mib": 1}},
        {"image": 7},
    ],
)
def test_a_malformed_option_is_a_typed_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.ValidationFailedError):
        _arguments.sandbox_options(**NOTHING | wrong)


def test_container_timeouts_come_from_the_option_then_the_variable_then_the_default() -> None:
    variables = {"SANDBOX_INSTANCE_TIMEOUT_MS": "5000", "SANDBOX_PORT_TIMEOUT_MS": "7000"}
    assert _arguments.timeouts(None, {}) == ContainerTimeouts()
    assert _arguments.timeouts({"instance_get": "2s"}, variables) == ContainerTimeouts(
        instance_get=2, port_ready=7
    )
    assert _arguments.timeouts(ContainerTimeouts(instance_get=1), variables).instance_get == 1
    for wrong in ({"instance": 1}, {"port_ready": "x"}):
        with pytest.raises(errors.ValidationFailedError):
            _arguments.timeouts(wrong, {})
    with pytest.raises(errors.ValidationFailedError):
        _arguments.timeouts(None, {"SANDBOX_POLL_INTERVAL_MS": "fast"})


def test_what_is_due_later_is_a_time_with_a_zone_or_a_delay() -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    assert _arguments.later(at) == (at, None)
    assert _arguments.later(1.5) == (None, 1500)
    assert _arguments.later("1h") == (None, 3_600_000)
    with pytest.raises(errors.ValidationFailedError, match="time zone"):
        _arguments.later(at.replace(tzinfo=None))


@pytest.mark.parametrize("moment", [at := datetime(2026, 1, 1, tzinfo=UTC).timestamp(), at * 1000])
def test_seconds_and_milliseconds_since_1970_are_no_delay(moment: float) -> None:
    with pytest.raises(errors.ValidationFailedError, match="10 years") as caught:
        _arguments.later(moment)
    assert "datetime" in str(caught.value.suggestion)


@pytest.mark.parametrize("wrong", [0, "0s", -1, "soon"])
def test_what_would_be_gone_at_once_is_not_made(wrong: Any) -> None:
    with pytest.raises(errors.ValidationFailedError) as caught:
        _arguments.lifetime(wrong)
    assert "command" not in str(caught.value)
    assert caught.value.context == {"field": "ttl"}


NOWHERE = "http://127.0.0.1:1"
WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *(("exec", ("true",), {name: 5}) for name in ("on_output", "on_complete", "on_error")),
    *(("run_code", ("1",), {name: "f"}) for name in ("on_stdout", "on_stderr", "on_result")),
    *(("start_process", ("true",), {name: []}) for name in ("on_start", "on_exit", "on_error")),
    *(("get_process", (id,), {}) for id in (None, 5, b"x", ["x"], float("nan"))),
    *((name, (5,), {}) for name in ("kill_process", "stop_process", "get_process_logs")),
    ("cancel_schedule", (object(),), {}),
    ("create_backup", (), {"dir": "/workspace", "excludes": "*.pyc"}),
    ("create_backup", (), {"dir": "/workspace", "excludes": None}),
    ("replace_in_files", ("abc", "a", "b"), {}),
    ("replace_in_files", (None, "a", "b"), {}),
    ("read_file", ("x",), {"encoding": ["utf-8"]}),
    ("fetch", ("/",), {"port": 8080, "headers": "a: b"}),
    ("ws_connect", ("/", 8080), {"headers": [1]}),
    ("mount_bucket", ("b", "/b"), {"endpoint": 5}),
    ("mount_bucket", ("b", "/b"), {"endpoint": "https://s3.test", "s3fs_options": "ro"}),
    ("set_outbound_by_hosts", (None,), {}),
    ("set_outbound_by_host", (["a.test"], "h"), {}),
    ("start_and_wait_for_ports", (None,), {}),
    ("start_and_wait_for_ports", ("80",), {}),
    *(("exec", ("true",), {name: "no"}) for name in ("check", "stream", "snapshot_before")),
    *((name, ("true",), {"session": ""}) for name in ("exec", "spawn", "start_process")),
    *((name, ("true",), {"timeout": True}) for name in ("exec", "spawn", "start_process")),
    ("exec", ("cat",), {"stdin": "\ud800"}),
    ("fetch", ("/",), {"port": 8080, "method": 5}),
    ("fetch", ("/",), {"port": 8080, "body": 5}),
    ("ws_connect", ("/", 8080), {"subprotocols": "chat"}),
    ("upload", (None, "x"), {}),
    ("upload", (__file__, "x"), {"progress": 5}),
    ("download", ("x", b"/x"), {}),
    ("download", ("x", "/x"), {"progress": 5}),
]


@pytest.mark.parametrize(("name", "args", "options"), WRONG)
async def test_a_wrong_argument_is_told_by_its_name_and_nothing_is_sent(
    name: str, args: tuple[Any, ...], options: dict[str, Any]
) -> None:
    """There is no engine: what were sent would fail otherwise."""
    async with atoll.connect(NOWHERE) as env:
        with pytest.raises(errors.ValidationFailedError) as caught:
            await getattr(atoll.get_sandbox(env.Sandbox, "box"), name)(*args, **options)
    assert caught.value.context["field"]


async def test_one_text_is_no_list_of_hosts_or_packages() -> None:
    """Its letters are: hosts that nobody meant, and packages of strangers."""
    wrong: Any = "requests"
    async with atoll.connect(NOWHERE) as env:
        with pytest.raises(errors.ValidationFailedError, match="hosts"):
            await env.Sandbox.secrets.put("KEY", "value", hosts=wrong)
        with pytest.raises(errors.ValidationFailedError, match="pip"):
            await env.package_caches.fill("cache", pip=wrong)
        with pytest.raises(errors.ValidationFailedError, match="on_progress"):
            await env.images.build_base(on_progress=wrong)
        with pytest.raises(errors.ValidationFailedError, match="folders"):
            await env.offer_buckets(wrong)
