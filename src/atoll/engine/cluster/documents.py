"""Rows of the store ⇄ objects of a cluster. Pure.

Rows that are written together belong to one object, so that a compare-and-set of its version is a
transaction over them: a sandbox's record, its events and its ports. What is large or changes by
itself has an object of its own: sessions, processes. Tables that are not named here hold what
replicas of an engine cannot share; a write to one is refused.
"""

import base64
import hashlib
import json
import lzma
from typing import Any, Final, NamedTuple

from atoll.errors import NoSpaceError

Object = dict[str, Any]
Row = dict[str, Any]
Rows = dict[str, list[Row]]

GROUP: Final = "atoll.dev/v1"
SANDBOX: Final = "Sandbox"
RECORD: Final = "Record"
PLURALS: Final = {SANDBOX: "sandboxes", RECORD: "records"}
LABELS: Final = {"app.kubernetes.io/managed-by": "atoll"}

PLAIN: Final = 64 << 10
"""Bytes of rows above which they are packed: `kubectl` shows smaller ones as they are."""

LARGEST: Final = 1_300_000
"""Bytes of an object's rows: etcd takes 1.5 MiB with everything else."""

_BODY: Final = "body"


class Key(NamedTuple):
    """Which object: what it holds, and whose it is."""

    topic: str
    parts: tuple[str, ...]

    @property
    def kind(self) -> str:
        """The kind of the object."""
        return SANDBOX if self.topic == "sandbox" else RECORD

    @property
    def name(self) -> str:
        """The object's name: ids have letters that such names cannot have."""
        told = "\0".join((self.topic, *self.parts)).encode()
        return (
            f"{self.topic}-{base64.b32encode(hashlib.sha256(told).digest())[:32].decode().lower()}"
        )


TOPICS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "sandbox": {
        "sandboxes": ("namespace", "id"),
        "events": ("namespace", "sandbox"),
        "ports": ("namespace", "sandbox"),
    },
    "processes": {"processes": ("namespace", "sandbox")},
    "sessions": {"sessions": ("namespace", "id")},
    "namespace": {"namespaces": ("name",)},
    "key": {"keys": ("id",)},
    "meta": {"meta": ("name",)},
    "places": {"places": ("namespace",)},
}
"""Topic → table → columns of the key: rows with the same key are one object."""

TABLES: Final = {table: topic for topic, tables in TOPICS.items() for table in tables}


def packed(key: Key, rows: Rows) -> Object:
    """Return the object that holds *rows*.

    Raises:
        NoSpaceError: they are more than an object can hold.
    """
    text = json.dumps({table: [_plain(row) for row in found] for table, found in rows.items()})
    if len(text) > PLAIN:
        small = base64.b85encode(lzma.compress(text.encode(), preset=1)).decode()
        held, size = {"packed": small}, len(small)
    else:
        held, size = {"rows": text}, len(text)
    if size > LARGEST:
        raise NoSpaceError(
            f"what is kept of {'/'.join(key.parts)} ({key.topic}) has {size} bytes",
            context={"limit": LARGEST, "size": size},
            suggestion="use fewer or smaller variables, labels and processes",
        )
    return {
        "apiVersion": GROUP,
        "kind": key.kind,
        "metadata": {"name": key.name, "labels": LABELS},
        "spec": {"topic": key.topic, "key": list(key.parts)},
        **_shown(rows),
        **held,
    }


def _plain(row: Row) -> Row:
    return {name: value.decode() if name == _BODY else value for name, value in row.items()}


def _shown(rows: Rows) -> Object:
    """Return what `kubectl get` tells of a sandbox."""
    for row in rows.get("sandboxes", ()):
        shown = {"state": row["state"], "generation": json.loads(row[_BODY])["generation"]}
        return shown | ({"pod": row["host_ref"]} if row["host_ref"] else {})
    return {}


def key_of(found: Object) -> Key:
    """Return which object this is."""
    return Key(found["spec"]["topic"], tuple(found["spec"]["key"]))


def unpacked(found: Object) -> Rows:
    """Return the rows that an object holds."""
    if "packed" in found:
        text = lzma.decompress(base64.b85decode(found["packed"])).decode()
    else:
        text = found["rows"]
    return {table: [_typed(row) for row in rows] for table, rows in json.loads(text).items()}


def _typed(row: Row) -> Row:
    return {name: value.encode() if name == _BODY else value for name, value in row.items()}


def definition(kind: str) -> Object:
    """Return the CustomResourceDefinition of *kind*."""
    plural, text = PLURALS[kind], {"type": "string"}
    spec = {
        "type": "object",
        "properties": {"topic": text, "key": {"type": "array", "items": text}},
    }
    properties: Object = {"spec": spec, "rows": text, "packed": text}
    columns: list[Object] = [{"name": "Key", "type": "string", "jsonPath": ".spec.key"}]
    if kind == SANDBOX:
        properties |= {"state": text, "generation": {"type": "integer"}, "pod": text}
        columns += [
            {"name": name.capitalize(), "type": properties[name]["type"], "jsonPath": f".{name}"}
            for name in ("state", "generation", "pod")
        ]
    version = {
        "name": "v1", "served": True, "storage": True, "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }  # fmt: skip
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.atoll.dev"},
        "spec": {
            "group": "atoll.dev", "scope": "Namespaced", "versions": [version],
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
        },
    }  # fmt: skip
