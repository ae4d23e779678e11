"""A request for every operation of the table, made from its types: a new operation is covered by itself.

Pure. Values are such that a request is well-formed and gets as far as it can; what it is about need
not be there.
"""

import json
import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from atoll.wire import ops
from atoll.wire.ops import Kind, Op

EXAMPLES: Mapping[str, Any] = {
    "path": "/tmp/probe-file", "source": "/tmp/probe-file", "target": "/tmp/probe-target",
    "dir": "/tmp", "url": "https://127.0.0.1:9/r.git", "pattern": "*", "text": "x", "old": "x",
    "new": "y", "command": ["true"], "code": "1", "language": "python", "name": "probe",
    "tag": "probe", "cols": 80, "rows": 24, "port": 8_000, "ports": [8_000], "limit": 5,
    "count": 1, "size": 10_000_000, "bucket": "probe", "endpoint": "http://127.0.0.1:9",
    "snapshot": "none", "since": "none", "backup": "none", "signal": "SIGCONT", "waitMs": 0,
    "wait": 0, "timeout": 1_000, "method": "probe", "compression": "none", "at": "2100-01-01T00:00:00Z", "paths": ["/tmp/probe-file"],
}  # fmt: skip
"""Field → a value that makes sense in most operations."""

RUN_BY_DESIGN = frozenset({"command", "code"})
"""Fields whose text is a program: running it is no injection."""

PLACES: Mapping[str, str] = {"port": "8000", "project": "probes"}


class Request(NamedTuple):
    """What is sent. `fields` are in the names of the wire."""

    op: Op[Any, Any]
    path: str
    fields: dict[str, Any]

    @property
    def arguments(self) -> dict[str, Any]:
        """For `httpx2.Client.stream`."""
        arguments: dict[str, Any] = {"method": self.op.method, "url": self.path}
        if self.op.kind is Kind.UPLOAD or self.op.method in {"GET", "DELETE"}:
            arguments["params"] = {name: _query(value) for name, value in self.fields.items()}
            if self.op.kind is Kind.UPLOAD:
                arguments["content"] = b"probe"
            return arguments
        return arguments | {
            "content": json.dumps(self.fields).encode(),
            "headers": {"content-type": "application/json"},
        }


def request(
    op: Op[Any, Any], changes: Mapping[str, Any] | None = None, /, **places: str
) -> Request:
    """Return a well-formed request.

    Args:
        op: the operation.
        changes: fields that are set, in the names of the wire.
        places: values for the placeholders of its path.
    """
    fields = {field.encode_name: example(field.encode_name, field.type) for field in needed(op)}
    known = {**PLACES, **places}
    path = re.sub(r"{(\w+)}", lambda match: known.get(match[1], "none"), op.path)
    return Request(op, path, fields | dict(changes or {}))


def needed(op: Op[Any, Any]) -> Iterator[Any]:
    """Yield the fields without which a request makes no sense."""
    for field in msgspec.structs.fields(op.request):
        if field.required or field.encode_name in EXAMPLES:
            yield field


def example(name: str, kind: Any) -> Any:
    """Return a value of the type *kind* for the field *name*."""
    if name in EXAMPLES and _fits(EXAMPLES[name], kind):
        return EXAMPLES[name]
    found = next(inner for inner in _alternatives(kind))
    origin = typing.get_origin(found) or found
    if isinstance(origin, type) and issubclass(origin, msgspec.Struct):
        return {f.encode_name: example(f.encode_name, f.type)
                for f in msgspec.structs.fields(origin) if f.required}  # fmt: skip
    made: dict[Any, Any] = {list: [], dict: {}, int: 1, float: 1.0, bool: False, str: "probe"}
    return made.get(origin, "probe")


def texts(op: Op[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields of *op* that take text, with how a text is put into each."""
    for field in msgspec.structs.fields(op.request):
        if field.encode_name in RUN_BY_DESIGN:
            continue
        for kind in _alternatives(field.type):
            if kind is str:
                yield field.encode_name, _plain
            elif typing.get_origin(kind) is list and str in typing.get_args(kind):
                yield field.encode_name, _listed
            elif typing.get_origin(kind) is dict:
                yield field.encode_name, _mapped


def placeholders(op: Op[Any, Any]) -> list[str]:
    """Return the names in the path of *op*."""
    return re.findall(r"{(\w+)}", op.path)


TABLE = ops.TABLE


def _plain(text: str) -> Any:
    return text


def _listed(text: str) -> Any:
    return [text]


def _mapped(text: str) -> Any:
    return {text: text}


def _query(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value


def _alternatives(kind: Any) -> list[Any]:
    if typing.get_origin(kind) is typing.Annotated:
        return _alternatives(typing.get_args(kind)[0])
    if typing.get_origin(kind) in {typing.Union, types.UnionType}:
        inner = [one for part in typing.get_args(kind) for one in _alternatives(part)]
        return [one for one in inner if one is not type(None)]
    return [kind]


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True
