"""Requests of every operation: a value of its type, or one typed error."""

import json
from typing import Any
from urllib.parse import quote

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.requests import Request

from atoll.errors import ValidationFailedError
from atoll.server import answer
from atoll.wire import ops
from atoll.wire.operation import Op
from fuzz.examples import examples
from fuzz.shapes import JUNK, shaped

_ONE = st.sampled_from(ops.TABLE)
_DEEP = b"[" * 100_000


def _decoded(op: Op[Any, Any], body: bytes) -> Any:
    try:
        return answer.decode(body, op.request)
    except ValidationFailedError as error:
        msgspec.json.encode(error.to_wire())
        return None


def _check(op: Op[Any, Any], body: bytes) -> None:
    """What is taken means the same when it is written and read again."""
    found = _decoded(op, body)
    if found is not None:
        assert isinstance(found, op.request)
        assert answer.decode(msgspec.json.encode(found), op.request) == found


@examples(400)
@given(_ONE.flatmap(lambda op: st.tuples(st.just(op), shaped(op.request) | JUNK)))
def test_every_body_is_a_request_or_a_typed_error(call: tuple[Op[Any, Any], Any]) -> None:
    op, body = call
    _check(op, json.dumps(body).encode())


@examples(100)
@given(_ONE, st.binary(max_size=40))
@example(ops.EXEC, _DEEP)
@example(ops.EXEC, b'{"command": ' + _DEEP)
@example(ops.EXEC, b'{"timeoutMs": ' + b"9" * 5_000 + b"}")
def test_bytes_that_are_no_json_are_a_typed_error(op: Op[Any, Any], body: bytes) -> None:
    _check(op, body)


def test_every_operation_says_typed_what_it_does_not_take() -> None:
    for op in ops.TABLE:
        for body in (b"", b"{}", b"[]", b"null", b"1", b'{"unknown": 1}', b"{", b"\xff", _DEEP):
            _check(op, body)


@examples(200)
@given(_ONE.flatmap(lambda op: st.tuples(st.just(op), shaped(op.request))))
def test_every_query_is_a_request_or_a_typed_error(call: tuple[Op[Any, Any], Any]) -> None:
    op, fields = call
    text = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in fields.items())
    request = Request({"type": "http", "query_string": text.encode(), "headers": []})
    try:
        found = answer.decode_query(request, op.request)
    except ValidationFailedError as error:
        msgspec.json.encode(error.to_wire())
    else:
        assert isinstance(found, op.request)


def _quoted(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return quote(text.encode(errors="surrogatepass"))
